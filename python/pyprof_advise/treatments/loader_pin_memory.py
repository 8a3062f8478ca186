# /// treatment
# title = "Load data into pinned memory"
# rules = ["copies/pageable", "host/copies-wait", "host/data-loading"]
# lines = """
# loader = DataLoader(dataset, ..., pin_memory=True)
# inputs = inputs.to(device, non_blocking=True)
# """
# where = "where the DataLoader is made, and where batches are copied to the GPU"
# tolerance = 1e-4
# ///
"""Batches are pinned by a thread of the DataLoader. Copies stay blocking: only the program can change that."""

from __future__ import annotations

from pyprof_advise.treatment import Program
from torch.utils.data import DataLoader


def apply(program: Program) -> None:
    program.needs_gpu("pinned memory needs a GPU")
    program.arguments(DataLoader, lambda given: None if given.get("pin_memory") else {"pin_memory": True})
