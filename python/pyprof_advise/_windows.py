"""One window of recorded steps, by torch.profiler or by the nsys that the program runs under."""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Protocol

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from . import _guard, _state
from ._layers import Layers, Range
from ._scheduling import Scheduling

if TYPE_CHECKING:
    from ._settings import Settings, Window


class Recorder(Protocol):
    """Records the steps of one window. `start` begins a step that is not kept, which warms the profiler up."""

    file: str | None
    """The trace, once it is written; None for a recorder that writes none itself."""

    def start(self) -> None:
        """Begins to record at the first step."""

    def step(self) -> bool:
        """Ends a step and begins another; returns whether the window is complete and was written."""

    def abandon(self) -> None:
        """Stops, and writes nothing."""

    def finish(self) -> bool:
        """Stops before the window is complete; returns whether a trace with a whole step was written."""


class TorchRecorder:
    """A window recorded by torch.profiler."""

    def __init__(
        self,
        window: Window,
        settings: Settings,
        path: Path,
        metadata: dict[str, Any],
        workers: Callable[[], list[int]],
    ) -> None:
        self.file: str | None = None
        self.window = window
        self._path = path
        self._metadata = metadata
        self._workers = workers
        self._scheduling: Scheduling | None = None
        self._wanted = settings.steps
        self._max_seconds = settings.max_seconds
        self._ended = 0
        self._began = 0.0
        self._keep = True
        detailed = window == "detailed"
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            schedule=self._action,
            on_trace_ready=self._export,
            record_shapes=detailed,
            with_stack=detailed and settings.stack,
            experimental_config=experimental_config(stack=detailed and settings.stack),
        )
        self._layers = named_layers() if detailed else None

    def start(self) -> None:
        """Begins to record at the first step."""
        with warnings.catch_warnings(), _guard.ours():
            warnings.simplefilter("ignore")
            self._profile.start()
        _state.has_profiled = True
        _state.is_detailed = self._layers is not None
        # One step early: hooks take effect at the next call of a model, and this may be inside of one.
        if self._layers is not None:
            self._layers.install()

    def step(self) -> bool:
        """Ends a step and begins another; returns whether the window is complete and was written."""
        if self._began:
            self._ended += 1
            if self._ended >= self._wanted or self._seconds() >= self._max_seconds:
                return self.finish()
        else:
            # Between the steps of a window the program's queue is left alone; the profiler waits at its end.
            synchronize()
            with contextlib.suppress(Exception):
                self._scheduling = Scheduling(self._workers())
            self._began = time.perf_counter()
        self._profile.step()
        return False

    def finish(self) -> bool:
        """Stops before the window is complete; returns whether a trace with a whole step was written."""
        self._remove_layers()
        self._keep = self._ended > 0
        if self._keep:
            with contextlib.suppress(Exception):
                if self._scheduling is not None:
                    self._metadata["scheduling"] = self._scheduling.until_now()
            self._profile.add_metadata_json("pyprof_advise", json.dumps(self._metadata))
        self._profile.stop()
        return self.file is not None

    def abandon(self) -> None:
        """Stops, and writes nothing."""
        self._keep = False
        self._remove_layers()
        self._profile.stop()

    @property
    def steps(self) -> int:
        """Whole steps recorded so far."""
        return self._ended

    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def _remove_layers(self) -> None:
        _state.is_detailed = False
        if self._layers is not None:
            self._layers.remove()
            self._layers = None

    @staticmethod
    def _action(step: int) -> ProfilerAction:
        return ProfilerAction.WARMUP if step == 0 else ProfilerAction.RECORD

    def _export(self, recorded: Any) -> None:
        if not self._keep:
            return
        export(recorded, self._path)
        self.file = self._path.name


class NsysRecorder:
    """A window recorded by nsys, between the start and the stop of the CUDA profiler."""

    file: str | None = None

    def __init__(self, settings: Settings, first_step: int) -> None:
        self._wanted = settings.steps
        self._max_seconds = settings.max_seconds
        self._number = first_step
        self._ended = 0
        self._began = 0.0
        self._layers = Layers(_NvtxRange)
        self._started = False
        self._operators = (
            torch.autograd.profiler.emit_nvtx(record_shapes=True)
            if settings.names_operators
            else contextlib.nullcontext()
        )

    @property
    def steps(self) -> int:
        """Whole steps recorded so far."""
        return self._ended

    def start(self) -> None:
        """Begins to record at the first step."""

    def step(self) -> bool:
        """Ends a step and begins another; returns whether the window is complete."""
        if not self._started:
            synchronize()
            torch.cuda.profiler.start()
            self._started = True
            self._began = time.perf_counter()
            with _guard.ours():
                self._operators.__enter__()
            self._layers.install()
        else:
            torch.cuda.nvtx.range_pop()
            self._ended += 1
            if self._ended >= self._wanted or time.perf_counter() - self._began >= self._max_seconds:
                self._stop()
                return True
        self._number += 1
        torch.cuda.nvtx.range_push(f"step {self._number}")
        return False

    def finish(self) -> bool:
        """Stops before the window is complete; returns whether it holds a whole step."""
        self._stop()
        return self._ended > 0

    def abandon(self) -> None:
        """Stops; nsys keeps what it has recorded."""
        self._stop()

    def _stop(self) -> None:
        self._layers.remove()
        if self._started:
            self._operators.__exit__(None, None, None)
            synchronize()
            torch.cuda.profiler.stop()
            self._started = False


class _NvtxRange:
    def __init__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> None:
        torch.cuda.nvtx.range_push(self._text)

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None:
        torch.cuda.nvtx.range_pop()


def synchronize() -> None:
    """Waits for the GPU, so that no kernel runs in a window that was not launched in it."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def export(recorded: Any, path: Path) -> None:
    """Writes a trace, and waits until it is there: some backends write it in another thread."""
    recorded.export_chrome_trace(str(path))
    wait = getattr(recorded, "wait_for_exports", None)
    if wait is not None:
        wait()


def named_layers() -> Layers:
    """Ranges of torch.profiler around module calls."""
    return Layers(profiler_range)


def profiler_range(text: str) -> Range:
    """A range of torch.profiler, of the kind that costs least."""
    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    if fast is not None:
        return fast(text)  # type: ignore[no-any-return]
    return torch.profiler.record_function(text)


def experimental_config(*, stack: bool) -> Any:
    """Options that newer versions of torch have: all threads (pipelines, DataParallel), no Python events."""
    from torch._C._profiler import _ExperimentalConfig

    options: list[dict[str, Any]] = [
        {"profile_all_threads": True, "trace_only": True},
        {"profile_all_threads": True},
        {},
    ]
    for option in options:
        try:
            return _ExperimentalConfig(verbose=stack, **option)
        except TypeError:
            continue
    return None
