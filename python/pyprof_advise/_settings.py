"""What to record, as `pyprof-advise run` or the caller of `profile()` asks for it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

VARIABLE = "PYPROF_ADVISE_CAPTURE"
"""The environment variable in which `pyprof-advise run` passes the settings to the program."""

Window = Literal["light", "detailed", "timed", "host"]
"""A light window records operators only, so that idle time is real; a detailed one adds shapes and layers. In a
timed one, only the length of steps is measured; in one of the host, calls are counted by cProfile."""

Recorder = Literal["torch", "nsys", "clock"]
"""Who records: torch.profiler, the nsys that the program runs under, or a clock."""

STEPS = 3
"""Steps in each window."""
SKIP = 10
"""Fewest steps before the first window, unless the caller says how many."""
MAX_SECONDS = 60.0
"""Longest a window stays open; it always holds at least one step."""


@dataclass(frozen=True)
class Settings:
    """What to record and where to put it."""

    folder: Path
    skip: int | None = None
    """Steps before the first window; None: at least `SKIP`, and until their length is steady."""
    steps: int = STEPS
    max_seconds: float = MAX_SECONDS
    stack: bool = False
    windows: tuple[Window, ...] = ("light", "detailed")
    recorder: Recorder = "torch"
    names_operators: bool = False
    """Whether to put NVTX ranges around operators, for an nsys that does not."""
    treatments: tuple[Path, ...] = ()
    """Files of treatments to apply to the program, in this order."""
    seed: int | None = None
    """The seed of the random number generators when torch is imported; None leaves them alone."""
    host_profiler: str | None = None
    """A profiler of the host that runs beside the recording: `py-spy` or `scalene`."""
    ends: bool = False
    """Whether to end the program when everything is recorded."""

    @staticmethod
    def from_environment() -> Settings | None:
        """The settings of `pyprof-advise run`, or None in a program that it did not start."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        given = json.loads(text)
        return Settings(
            folder=Path(given["folder"]),
            skip=given.get("skip"),
            steps=int(given.get("steps", STEPS)),
            max_seconds=float(given.get("max_seconds", MAX_SECONDS)),
            stack=bool(given.get("stack", False)),
            windows=tuple(given.get("windows", ("light", "detailed"))),
            recorder=given.get("recorder", "torch"),
            names_operators=bool(given.get("names_operators", False)),
            treatments=tuple(map(Path, given.get("treatments", ()))),
            seed=given.get("seed"),
            host_profiler=given.get("host_profiler"),
            ends=bool(given.get("ends", False)),
        )
