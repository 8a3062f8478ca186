"""Measures how long steps take, without a profiler: for `pyprof-advise try`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from ._steps import compiled_graphs

if TYPE_CHECKING:
    from ._settings import Settings


class ClockRecorder:
    """Marks the boundaries of steps: in the stream of the GPU where there is one, else on the host.

    Nothing waits for the GPU before the last step has ended, so that the host runs ahead as it always does.
    """

    file: str | None = None

    def __init__(self, settings: Settings) -> None:
        self._wanted = settings.steps
        self._max_seconds = settings.max_seconds
        self._on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._marks: list[Any] = []
        self._began = 0.0
        self._graphs = 0

    @property
    def steps(self) -> int:
        """Whole steps measured so far."""
        return max(len(self._marks) - 1, 0)

    def start(self) -> None:
        """Begins to measure at the first step."""
        self._began = time.perf_counter()
        self._graphs = compiled_graphs()
        self._mark()

    def step(self) -> bool:
        """Ends a step and begins another; returns whether enough were measured."""
        self._mark()
        return self.steps >= self._wanted or time.perf_counter() - self._began >= self._max_seconds

    def finish(self) -> bool:
        """Stops before enough were measured; returns whether there is a whole step."""
        return self.steps > 0

    def abandon(self) -> None:
        """Stops, and measures nothing."""
        self._marks.clear()

    def result(self) -> dict[str, Any]:
        """The length of every step in ns, and what to know about it. Waits for the GPU."""
        pairs = list(zip(self._marks, self._marks[1:]))
        if self._on_gpu:
            torch.cuda.synchronize()
            lengths = [round(before.elapsed_time(after) * 1e6) for before, after in pairs]
        else:
            lengths = [after - before for before, after in pairs]
        return {
            "step_ns": lengths,
            "clock": "gpu" if self._on_gpu else "host",
            "gpu": torch.cuda.get_device_name() if self._on_gpu else None,
            "compiling": compiled_graphs() != self._graphs,
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if self._on_gpu else None,
        }

    def _mark(self) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())
