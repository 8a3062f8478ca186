# /// treatment
# title = "Gradients dropped instead of zeroed"
# rules = ["layers/zeroed-gradients", "memory/memsets", "memory/zero-filling"]
# lines = "optimizer.zero_grad(set_to_none=True)"
# where = "in place of the call that says False; True is the default"
# tolerance = 1e-4
# ///
"""`zero_grad(set_to_none=False)` fills every gradient with zeros; dropping them saves that and an addition."""

from __future__ import annotations

from typing import Any, Callable

from pyprof_advise.treatment import Program
from torch import nn
from torch.optim import Optimizer


def apply(program: Program) -> None:
    def drop(original: Callable[..., Any], owner: Any, set_to_none: bool = True) -> Any:
        if not set_to_none:
            program.changed("zero_grad(set_to_none=True)")
        return original(owner, set_to_none=True)

    program.around(Optimizer, "zero_grad", drop)
    program.around(nn.Module, "zero_grad", drop)
