# /// treatment
# title = "Load data in worker processes"
# rules = ["host/data-loading", "host/loader-in-training-process"]
# lines = "loader = DataLoader(dataset, ..., num_workers=4, persistent_workers=True)"
# where = "where the DataLoader is made"
# tolerance = 1e-3
# changes_results = "random augmentations draw other numbers in workers"
# ///
"""DataLoaders without workers get as many as there are processors for, at most 4."""

from __future__ import annotations

import os
from typing import Any

from pyprof_advise.treatment import Program
from torch.utils.data import DataLoader

MOST = 4


def apply(program: Program) -> None:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    workers = min(MOST, processors // max(ranks, 1) - 1)
    if workers < 1:
        program.refuse(f"{processors} processors are too few for {ranks} ranks and their workers")

    def add(given: dict[str, Any]) -> dict[str, Any] | None:
        return None if given.get("num_workers") else {"num_workers": workers, "persistent_workers": True}

    program.arguments(DataLoader, add)
