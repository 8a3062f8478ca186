# /// treatment
# title = "Keep the workers between epochs"
# rules = ["host/data-loading"]
# lines = "loader = DataLoader(dataset, ..., persistent_workers=True)"
# where = "where the DataLoader is made"
# tolerance = 1e-4
# ///
"""DataLoaders with workers keep them for the next epoch. It saves time where epochs are short."""

from __future__ import annotations

from typing import Any

from pyprof_advise.treatment import Program
from torch.utils.data import DataLoader


def apply(program: Program) -> None:
    def keep(given: dict[str, Any]) -> dict[str, Any] | None:
        new = given.get("num_workers") and not given.get("persistent_workers")
        return {"persistent_workers": True} if new else None

    program.arguments(DataLoader, keep)
