# /// treatment
# title = "A fused optimizer"
# rules = ["layers/optimizer-foreach", "layers/optimizer-unfused", "layers/optimizer-kernels"]
# lines = "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)"
# where = "where the optimizer is made; Adam, SGD and Adagrad have `fused` too"
# kind = "optimizer"
# tolerance = 1e-3
# ///
"""Optimizers that have a fused implementation and do not ask for another one use it."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    def fuse(given: dict[str, Any]) -> dict[str, Any] | None:
        asks = any(given.get(name) for name in ("fused", "foreach", "capturable", "differentiable"))
        return None if asks or "defaults" in given else {"fused": True}

    for name in ("Adam", "AdamW", "SGD", "Adagrad"):
        kind = getattr(torch.optim, name)
        if "fused" in inspect.signature(kind.__init__).parameters:
            program.arguments(kind, fuse)
