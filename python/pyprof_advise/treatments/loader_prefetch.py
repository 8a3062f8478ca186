# /// treatment
# title = "Prefetch more batches per worker"
# rules = ["host/data-loading"]
# lines = "loader = DataLoader(dataset, ..., prefetch_factor=8)"
# where = "where the DataLoader is made"
# tolerance = 1e-4
# ///
"""DataLoaders with workers prepare 8 batches per worker instead of 2: for batches of uneven cost."""

from __future__ import annotations

from typing import Any

from pyprof_advise.treatment import Program
from torch.utils.data import DataLoader

BATCHES = 8


def apply(program: Program) -> None:
    def more(given: dict[str, Any]) -> dict[str, Any] | None:
        few = given.get("num_workers") and (given.get("prefetch_factor") or 0) < BATCHES
        return {"prefetch_factor": BATCHES} if few else None

    program.arguments(DataLoader, more)
