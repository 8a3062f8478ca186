"""What the callbacks for training frameworks share: a capture from the begin to the end of training."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ._record import Ranks, Record, gather
from ._report import AdviseError, Report, warn_without_gpu
from ._settings import VARIABLE, Settings

PATIENCE = 60.0
"""Seconds that rank 0 waits for the traces of the others."""


class Session:
    """Records some steps of a training, and writes a report at its end."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        report: str | None = "advice.md",
        skip: int | None = None,
        steps: int = 3,
        stack: bool = False,
    ) -> None:
        self._settings = Settings(Path(folder), skip=skip, steps=steps, stack=stack)
        self._report = report
        self._capture: object = None

    def begin(self) -> None:
        """Training begins. Does nothing under `pyprof-advise run`, which records already."""
        if VARIABLE in os.environ or self._capture is not None:
            return
        from ._capture import Capture

        if self._report is not None:
            warn_without_gpu(stacklevel=2)
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        capture = Capture(self._settings, Record(self._settings.folder))
        capture.install()
        self._capture = capture

    def end(self) -> None:
        """Training ends: rank 0 writes the report."""
        from ._capture import Capture

        capture, self._capture = self._capture, None
        if not isinstance(capture, Capture):
            return
        capture.stop("ended")
        ranks = Ranks.here()
        if ranks is not None and ranks.rank != 0:
            return
        folder = self._settings.folder
        self._wait_for(folder, 1 if ranks is None else ranks.world_size)
        gather(folder, sys.argv)
        if self._report is None:
            return
        try:
            Report((folder,), _recorded_here=True).save(folder / self._report)
        except (AdviseError, OSError) as error:
            print(f"pyprof-advise: {error}", file=sys.stderr)

    @staticmethod
    def _wait_for(folder: Path, processes: int) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if len(list(folder.glob("process-*.json"))) >= processes:
                return
            time.sleep(0.1)


