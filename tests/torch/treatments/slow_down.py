# /// treatment
# title = "A treatment that slows down and changes results"
# rules = []
# lines = "time.sleep(0.02)"
# where = "never"
# tolerance = 1e-4
# ///
"""For tests: what does not help and computes something else is said to."""

from __future__ import annotations

import time
from typing import Any, Callable

from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    def slow(model: nn.Module) -> None:
        program.around_forward(model, slowly)
        program.changed("everything")

    program.each_model(slow)


def slowly(forward: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.02)
        return forward(*args, **kwargs) * 2

    return called
