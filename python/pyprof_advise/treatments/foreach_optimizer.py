# /// treatment
# title = "An optimizer that handles parameters together"
# rules = ["layers/optimizer-unfused"]
# lines = "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, foreach=True)"
# where = "where the optimizer is made"
# kind = "optimizer"
# tolerance = 1e-3
# ///
"""Optimizers use their `foreach` implementation, which launches a few kernels for all parameters."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    def together(given: dict[str, Any]) -> dict[str, Any] | None:
        return None if given.get("fused") or given.get("foreach") else {"foreach": True}

    for kind in vars(torch.optim).values():
        if not isinstance(kind, type) or "__init__" not in vars(kind):
            continue
        if "foreach" in inspect.signature(kind.__init__).parameters:  # type: ignore[misc]
            program.arguments(kind, together)
