# /// treatment
# title = "TF32 for fp32 convolutions"
# rules = ["precision/tf32-off-in-convolutions"]
# lines = "torch.backends.cudnn.allow_tf32 = True"
# where = "in place of the line that sets it to False"
# tolerance = 2e-2
# changes_results = "fp32 convolutions keep 10 bits of the mantissa instead of 23"
# ///
"""TF32 is on by default for convolutions: a program that is advised this has switched it off."""

from __future__ import annotations

import torch
from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    program.needs_capability((8, 0), "TF32 needs an NVIDIA GPU of compute capability 8.0 or later")

    def allow(_model: nn.Module) -> None:
        if torch.backends.cudnn.allow_tf32:
            program.refuse("fp32 convolutions may use TF32 already")
        program.set(torch.backends.cudnn, "allow_tf32", True)
        program.changed("torch.backends.cudnn.allow_tf32 = True")

    # After the program has switched it off.
    program.each_model(allow)
