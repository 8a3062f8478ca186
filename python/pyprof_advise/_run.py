"""What `pyprof-advise run` does in the program: arms a capture as soon as torch is there."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys

import torch

from . import _state
from ._capture import Capture
from ._guard import OwnTraces
from ._record import Record
from ._settings import Settings
from ._trial import Trial

OLDEST = (2, 0)
"""The oldest torch with the hooks that are needed."""

_capture: Capture | None = None
_own_traces: OwnTraces | None = None
_trial: Trial | None = None


def arm() -> None:
    """Begins to count steps in this process, as the environment says."""
    settings = Settings.from_environment()
    if settings is None or _capture is not None:
        return
    atexit.register(_ended)
    os.register_at_fork(after_in_child=_forked)
    _arm(settings)


def _arm(settings: Settings) -> None:
    global _capture, _own_traces, _trial
    record = Record(settings.folder)
    reason = _why_not(settings)
    if reason is not None:
        record.state, record.reason = "stopped", reason
        record.write()
        return
    if settings.recorder == "torch":
        _own_traces = OwnTraces(record)
        _own_traces.install()
    _capture = Capture(settings, record)
    if settings.seed is not None or settings.ends:
        _trial = Trial(settings, record)
        _trial.watch(_capture)
        _trial.begin()
    _capture.install()
    record.write()


def _why_not(settings: Settings) -> str | None:
    """Why nothing can be recorded in this process."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        return f"torch {torch.__version__} is too old: version 2.0 or later is needed"
    under_nsys = "NSYS_PROFILING_SESSION_ID" in os.environ
    if under_nsys and settings.recorder == "torch":
        return "the program runs under nsys: only one profiler can record a process"
    return None


def _ended() -> None:
    """The program ends: a window that is still open is written, and the number of steps is known."""
    capture = _capture
    if capture is None or capture.record.pid != os.getpid():
        return
    # The exit status is the program's now.
    capture.on_done = None if _trial is None else _trial.finish
    try:
        if capture.record.state in ("waiting", "recording"):
            capture.stop("ended")
        else:
            capture.record.write()
    except Exception as error:
        print(f"pyprof-advise: {error!r}", file=sys.stderr)


def _forked() -> None:
    """In a child made by `fork`: it counts its own steps. A DataLoader's worker takes none."""
    global _capture
    if _state.has_profiled:
        with contextlib.suppress(Exception):
            _exit_without_destructors()
    capture, _capture = _capture, None
    if capture is None:
        return
    with contextlib.suppress(Exception):
        capture.forget()
        if _own_traces is not None:
            _own_traces.remove()
        if capture.record.state == "waiting":
            _arm(capture.settings)


def _exit_without_destructors() -> None:
    """Lets this process end without the destructors of C++ libraries: that of torch.profiler's waits for a
    thread that only the parent has, so that a child that calls `exit` would never end."""
    libc = ctypes.CDLL(None)
    # The last one that is registered runs first: C's streams are written before.
    libc.on_exit(libc._exit, None)
    libc.__cxa_atexit(libc.fflush, None, None)
