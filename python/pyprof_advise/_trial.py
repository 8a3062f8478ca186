"""A run of `pyprof-advise try`: fixed seeds, treatments, values to compare, and an early end."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import multiprocessing
import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from .treatment import Program, Refused
from ._record import Ranks
from ._values import Values

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from ._capture import Capture
    from ._record import Record
    from ._settings import Settings

PATIENCE = 30.0
"""Seconds that a rank waits for the others before it ends."""

_applied = False


class Trial:
    """What is special about this run in this process."""

    def __init__(self, settings: Settings, record: Record) -> None:
        self._settings = settings
        self._record = record
        self.values = Values()
        self.program = Program(self._refused)

    def begin(self) -> None:
        """Sets the seeds and applies the treatments."""
        global _applied
        if self._settings.seed is not None:
            seed(self._settings.seed)
            self.values.install()
        if _applied:
            return  # In a child made by `fork`, which has what its parent has.
        _applied = True
        for path in self._settings.treatments:
            try:
                load(path).apply(self.program)
            except Refused as refused:
                self._refused(str(refused))
            except Exception:
                self.program.undo()
                raise

    def finish(self) -> None:
        """Writes down what was found, when everything is measured or the program ends."""
        self.values.remove()
        trial = self._record.trial or {}
        trial["check"] = self.values.read()
        trial["changes"] = self.program.changes
        trial["lines"] = self.program.own_lines
        self._record.trial = trial
        self._record.write()

    def end(self) -> None:
        """Ends the program: what it would do after the measured steps is of no interest."""
        self.finish()
        if self._settings.ends:
            self._wait_for_others()
            leave()

    def watch(self, capture: Capture) -> None:
        """Lets the capture tell of models, and of its end."""
        if self._settings.seed is not None:
            capture.watch_models(self.program.model_called, self.values.returned)
        capture.on_done = self.end

    def _refused(self, why: str) -> None:
        self._record.state, self._record.reason = "stopped", why
        self._record.trial = {"refused": why}
        self._record.write()
        leave()

    def _wait_for_others(self) -> None:
        """Ranks end together: one that is gone would be an error to those still computing."""
        ranks = Ranks.here()
        if ranks is None:
            return
        with contextlib.suppress(ValueError, OSError):
            wanted = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world_size))
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and self._done() < wanted:
                time.sleep(0.05)

    def _done(self) -> int:
        states = self._settings.folder.glob("process-*.json")
        return sum(json.loads(state.read_text(encoding="utf-8"))["state"] == "done" for state in states)


def seed(number: int) -> None:
    """Seeds every generator that the program has by now; it may seed them again."""
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number)
    torch.manual_seed(number)


def load(path: Path) -> ModuleType:
    """The treatment in a file."""
    spec = importlib.util.spec_from_file_location(f"pyprof_advise_treatment_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leave() -> None:
    """Ends this process at once, with status 0: no exit handler, no checkpoint, nothing uploaded."""
    for child in multiprocessing.active_children():
        child.kill()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)
