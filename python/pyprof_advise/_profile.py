"""`with profile():` records what runs inside."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._report import Report, warn_without_gpu

if TYPE_CHECKING:
    import os
    from types import TracebackType


class Recording:
    """What a `profile()` block has recorded."""

    def __init__(self, folder: Path, *, stack: bool) -> None:
        self.folder = folder
        """Where the trace is."""
        self._stack = stack
        self._profiler: Any = None
        self._layers: Any = None
        self._step: Any = None
        self._steps = 0
        self._report: Report | None = None

    def step(self) -> None:
        """Ends a step and begins the next. Without it, the block is one step."""
        self._end_step()
        self._begin_step()

    def report(self, *options: str) -> Report:
        """The report on this recording; `options` are those of `pyprof-advise`: `"--gpu", "a100"`."""
        if self._profiler is not None:
            raise RuntimeError("the report is ready when the `with` block has ended")
        if self._report is None or options:
            self._report = Report((self.folder,), options, _recorded_here=True)
        return self._report

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def _start(self) -> None:
        import torch

        from . import _state, _windows

        warn_without_gpu(stacklevel=3)
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(
            activities=activities,
            record_shapes=True,
            with_stack=self._stack,
            experimental_config=_windows.experimental_config(stack=self._stack),
        )
        self._layers = _windows.named_layers()
        _windows.synchronize()
        self._profiler.start()
        self._layers.install()
        _state.is_detailed = True
        self._begin_step()

    def _stop(self) -> None:
        from . import _state, _windows
        from ._record import Record, write_manifest

        _state.is_detailed = False
        _windows.synchronize()
        self._end_step()
        self._layers.remove()
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        record = Record(self.folder, steps=self._steps)
        name = f"process{record.pid}-detailed.pt.trace.json"
        _windows.export(profiler, self.folder / name)
        record.add_window("detailed", name, list(range(self._steps)))
        write_manifest(record, sys.argv[:1])

    def _begin_step(self) -> None:
        import torch

        self._steps += 1
        self._step = torch.profiler.record_function(f"ProfilerStep#{self._steps}")
        self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None


class profile:
    """Records the block with operators, shapes and layers::

        with pyprof_advise.profile() as recording:
            for batch in itertools.islice(loader, 3):
                train_step(batch)
                recording.step()
        recording.report().save("advice.html")

    Run some steps before it: the first ones load code and allocate memory. `folder` keeps the trace;
    `stack` names source lines, which slows the host.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, stack: bool = False) -> None:
        self._folder = folder
        self._stack = stack
        self._recording: Recording | None = None

    def __enter__(self) -> Recording:
        if self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix="pyprof-advise-"))
        else:
            folder = Path(self._folder)
            folder.mkdir(parents=True, exist_ok=True)
        recording = self._recording = Recording(folder, stack=self._stack)
        recording._start()
        return recording

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording._stop()
