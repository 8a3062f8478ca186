# /// treatment
# title = "Python's garbage collector ignores what is there before training"
# rules = ["host/garbage-collection"]
# lines = """
# import gc
# gc.collect()
# gc.freeze()
# """
# where = "after the model and its optimizer are made, before the loop"
# tolerance = 1e-4
# ///
"""Objects that live as long as the program are no longer looked through by every full collection."""

from __future__ import annotations

import gc

from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    def freeze(_model: nn.Module) -> None:
        gc.collect()
        gc.freeze()
        program.on_undo(gc.unfreeze)
        program.changed("gc.freeze()")

    program.each_model(freeze)
