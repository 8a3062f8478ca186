"""Only one profiler can record a process: this one steps back for the program's own."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import profiler as kineto

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._record import Record

MAX_OWN = 4
"""Most traces of the program's own profiler that are kept."""


def is_profiling() -> bool:
    """Whether a profiler records in this thread."""
    return bool(torch._C._autograd._profiler_enabled())


class _Interrupt:
    """What to do when the program starts a profiler while a window is open."""

    def __init__(self) -> None:
        self.act: Callable[[], None] | None = None
        self.is_ours = False


_interrupt = _Interrupt()


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """Marks a profiler that is started inside as this package's."""
    _interrupt.is_ours = True
    try:
        yield
    finally:
        _interrupt.is_ours = False


def watch(act: Callable[[], None]) -> None:
    """Calls `act` before the program starts a profiler, until `release`."""
    _watch()
    _interrupt.act = act


def release() -> None:
    """Removes what `watch` has put around the profilers of torch."""
    _interrupt.act = None
    for owner, name, original in _watched:
        setattr(owner, name, original)
    _watched.clear()


_watched: list[tuple[type, str, Any]] = []


def _watch() -> None:
    if _watched:
        return
    for owner, name in (
        (autograd_profiler.profile, "_prepare_trace"),
        (autograd_profiler.emit_nvtx, "__enter__"),
    ):
        original = getattr(owner, name, None)
        if original is None:
            continue

        def started(profiler: Any, *args: Any, _original: Any = original) -> Any:
            act = _interrupt.act
            if act is not None and not _interrupt.is_ours:
                _interrupt.act = None
                act()
            return _original(profiler, *args)

        setattr(owner, name, started)
        _watched.append((owner, name, original))


class OwnTraces:
    """Copies the traces that the program's own profiler exports, from `install` to `remove`."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._original: Any = None

    def install(self) -> None:
        """Begins to watch for exports."""
        original = self._original = kineto._KinetoProfile.export_chrome_trace

        def export(profiled: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(profiled, path, *args, **kwargs)
            with contextlib.suppress(Exception):
                self._exported(Path(os.fspath(path)))
            return result

        kineto._KinetoProfile.export_chrome_trace = export  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Stops watching."""
        if self._original is not None:
            kineto._KinetoProfile.export_chrome_trace = self._original  # type: ignore[method-assign]
            self._original = None

    def _exported(self, path: Path) -> None:
        folder = self._record.folder
        number = sum(1 for window in self._record.windows if window["window"] == "own")
        if path.resolve().parent == folder.resolve() or number >= MAX_OWN:
            return
        ending = ".json.gz" if path.suffix == ".gz" else ".json"
        name = f"process{self._record.pid}-own{number}.pt.trace{ending}"
        try:
            os.link(path, folder / name)
        except OSError:
            shutil.copyfile(path, folder / name)
        self._record.add_window("own", name, [])
        self._record.write()
