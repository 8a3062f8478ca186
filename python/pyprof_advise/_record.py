"""What one process has recorded, as a small file that `pyprof-advise run` and the reader find."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._version import VERSION

MANIFEST = "manifest.json"
"""The name of the file that lists what is in a folder of traces."""
FORMAT = "pyprof-advise capture"
"""The value of `format` in a manifest."""


@dataclass(frozen=True)
class Ranks:
    """The place of this process in its job; a job has more than one process."""

    rank: int
    world_size: int

    @staticmethod
    def here() -> Ranks | None:
        """From torch.distributed, else from the variables of its launchers; None for a single process."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return Ranks(distributed.get_rank(), distributed.get_world_size())
        try:
            ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        except (KeyError, ValueError):
            return None
        return ranks if ranks.world_size > 1 else None


@dataclass
class Record:
    """The state of the capture in this process. It is written whenever it changes."""

    folder: Path
    pid: int = field(default_factory=os.getpid)
    state: str = "waiting"
    """`waiting`, `recording`, `done`, `stopped` (see `reason`) or `ended` (the program ended first)."""
    reason: str | None = None
    steps: int = 0
    """Steps seen so far."""
    steps_are: str | None = None
    """What a step is: `AdamW.step()`, `calls of Net`."""
    began: int | None = None
    """The number of steps after which the first window was opened."""
    windows: list[dict[str, Any]] = field(default_factory=list)
    """One entry per trace, as in the manifest."""
    notes: list[str] = field(default_factory=list)
    host: list[dict[str, Any]] = field(default_factory=list)
    """What profilers of the host have recorded: see `_host`."""
    trial: dict[str, Any] | None = None
    """What `pyprof-advise try` asks for: see `_trial`."""

    def add_window(self, window: str, file: str, steps: list[int]) -> None:
        """Adds a trace."""
        ranks = Ranks.here()
        entry: dict[str, Any] = {"file": file, "window": window, "pid": self.pid, "steps": steps}
        if ranks is not None:
            entry |= {"rank": ranks.rank, "world_size": ranks.world_size}
        if self.steps_are is not None:
            entry["steps_are"] = self.steps_are
        self.windows.append(entry)

    def write(self) -> None:
        """Replaces the file of this process; a folder that is gone or full is not the program's problem."""
        torch = sys.modules.get("torch")
        text: dict[str, Any] = {
            "pid": self.pid,
            "argv": sys.argv[:1],
            "state": self.state,
            "reason": self.reason,
            "steps": self.steps,
            "steps_are": self.steps_are,
            "began": self.began,
            "cuda": None if torch is None else torch.cuda.is_available(),
            "versions": versions(),
            "windows": self.windows,
            "notes": self.notes,
            "host": self.host,
            "trial": self.trial,
        }
        ranks = Ranks.here()
        if ranks is not None:
            text["rank"] = ranks.rank
        try:
            write_json(self.folder / f"process-{self.pid}.json", text)
        except OSError:
            pass


def versions() -> dict[str, str | None]:
    """The versions of what made a capture."""
    torch = sys.modules.get("torch")
    return {
        "pyprof_advise": VERSION,
        "python": platform.python_version(),
        "torch": None if torch is None else str(torch.__version__),
        "cuda": None if torch is None else torch.version.cuda or torch.version.hip,
    }


def write_manifest(record: Record, command: list[str]) -> Path:
    """Writes the manifest of a folder that one process has filled."""
    path = record.folder / MANIFEST
    _write_manifest(path, command, record.windows)
    return path


def gather(folder: Path, command: list[str]) -> Path:
    """Replaces the states of all processes by one manifest."""
    states = sorted(folder.glob("process-*.json"))
    files = []
    for state in states:
        files += json.loads(state.read_text(encoding="utf-8"))["windows"]
    path = folder / MANIFEST
    _write_manifest(path, command, files)
    for state in states:
        state.unlink(missing_ok=True)
    (folder / "start.json").unlink(missing_ok=True)
    return path


def _write_manifest(path: Path, command: list[str], files: list[dict[str, Any]]) -> None:
    text = {
        "format": FORMAT,
        "version": 1,
        "command": command,
        "versions": versions(),
        "files": files,
    }
    write_json(path, text)


def write_json(path: Path, value: object) -> None:
    """Replaces a file whole, so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
