"""A handler for programs that use torch.profiler already."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Callable

from ._record import Ranks
from ._report import AdviseError, Report


def advise_handler(
    folder: str | os.PathLike[str], *, report: str | None = "advice.md"
) -> Callable[[Any], None]:
    """For `torch.profiler.profile(on_trace_ready=...)`: writes the trace of each rank into `folder`, and a
    report on its own trace beside it (rank 0 only). `pyprof-advise FOLDER` then reports on all ranks."""
    place = Path(folder)

    def ready(profiler: Any) -> None:
        from . import _windows

        place.mkdir(parents=True, exist_ok=True)
        ranks = Ranks.here()
        who = f"process{os.getpid()}" if ranks is None else f"rank{ranks.rank}"
        path = place / f"{who}-step{profiler.step_num}.pt.trace.json"
        _windows.export(profiler, path)
        if report is None or (ranks is not None and ranks.rank != 0):
            return
        try:
            Report((path,), _recorded_here=True).save(place / report)
        except (AdviseError, OSError) as error:
            print(f"pyprof-advise: {error}", file=sys.stderr)

    return ready
