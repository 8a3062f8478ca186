"""Profilers of the host beside a recording: for `pyprof-advise run --host-profiler`."""

from __future__ import annotations

import contextlib
import cProfile
import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ._settings import Settings

RATE = 100
"""Samples per second."""
PATIENCE = 15.0
"""Longest to wait for a profiler to begin, or to write its file, in seconds."""
PR_SET_PTRACER = 0x59616D61
"""From <linux/prctl.h>: lets a process that is no parent read the memory of this one."""


class PySpy:
    """py-spy, which reads the stacks of this process from outside."""

    def __init__(self, folder: Path, who: str) -> None:
        self.entry: dict[str, Any] = {
            "file": f"{who}-py-spy.json",
            "profiler": "py-spy",
            "pid": os.getpid(),
        }
        self._path = folder / self.entry["file"]
        self._log = folder / f".{who}-py-spy.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0

    def start(self) -> None:
        """Starts py-spy and notes the time: its own times begin then."""
        command = ["py-spy", "record", "--pid", str(os.getpid()), "--output", str(self._path)]
        command += ["--format", "chrometrace", "--rate", str(RATE), "--idle", "--threads"]
        self._began = time.perf_counter()
        self.entry["started_unix_ns"] = time.time_ns()
        try:
            with self._log.open("wb") as log:
                self._process = _start(command, log)
        except OSError as error:
            self.entry["problem"] = f"cannot start py-spy: {error.strerror}"
            return
        if sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(PR_SET_PTRACER, self._process.pid, 0, 0, 0)

    def is_ready(self) -> bool:
        """Whether it samples, or never will."""
        if self._process is None or self._process.poll() is not None:
            return True
        said = self._said()
        return "Sampling process" in said or time.perf_counter() - self._began > PATIENCE

    def stop(self) -> None:
        """Ends it, and waits for its file."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if not self._path.exists():
            last = self._said().strip().splitlines()[-1:]
            self.entry["problem"] = f"py-spy wrote nothing: {' '.join(last)[:200]}"
        self._log.unlink(missing_ok=True)

    def _said(self) -> str:
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


class Scalene:
    """Scalene, under which `pyprof-advise run` has started this program, with sampling off."""

    def __init__(self, folder: Path, who: str) -> None:
        self.entry: dict[str, Any] = {
            "file": "scalene.json",
            "profiler": "scalene",
            "pid": os.getpid(),
        }
        self._profiler: Any = None

    def start(self) -> None:
        """Begins to sample. Its timer works in the main thread only."""
        try:
            from scalene import scalene_profiler

            scalene_profiler.start()
        except (Exception, SystemExit) as error:
            # It ends a program that it has not started.
            self.entry["problem"] = f"Scalene cannot start: {error}"
            return
        self._profiler = scalene_profiler

    def is_ready(self) -> bool:
        """It samples as soon as it was started."""
        return True

    def stop(self) -> None:
        """Ends sampling; Scalene writes its file when the program ends."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None


def _start(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = {name: text for name, text in os.environ.items() if name != "PYPROF_ADVISE_CAPTURE"}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
    )


class CProfileRecorder:
    """A window in which cProfile counts the calls of the thread that takes steps.

    It comes after the windows of torch.profiler, because counting calls slows them down.
    """

    file: str | None = None

    def __init__(self, settings: Settings, who: str) -> None:
        self.entry: dict[str, Any] = {
            "file": f"{who}-cprofile.prof",
            "profiler": "cprofile",
            "pid": os.getpid(),
        }
        self._path = settings.folder / self.entry["file"]
        self._wanted = settings.steps
        self._max_seconds = settings.max_seconds
        self._profile = cProfile.Profile()
        self._began = 0.0
        self.steps = 0
        """Whole steps so far."""

    def start(self) -> None:
        """Begins at the first step."""
        self._began = time.perf_counter()
        try:
            self._profile.enable()
        except ValueError as error:
            # Another tool of this kind is active.
            self.entry["problem"] = f"cProfile cannot start: {error}"

    def step(self) -> bool:
        """Ends a step and begins another; returns whether the window is complete and was written."""
        if "problem" in self.entry:
            return True
        self.steps += 1
        if self.steps >= self._wanted or time.perf_counter() - self._began >= self._max_seconds:
            return self.finish()
        return False

    def finish(self) -> bool:
        """Stops before the window is complete; returns whether a file with a whole step was written."""
        if "problem" in self.entry:
            return False
        self._profile.disable()
        if self.steps > 0:
            self._profile.dump_stats(self._path)
        return self.steps > 0

    def abandon(self) -> None:
        """Stops, and writes nothing."""
        self.entry["problem"] = "the program started a profiler of its own"
        self._profile.disable()
