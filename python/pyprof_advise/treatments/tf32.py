# /// treatment
# title = "TF32 for fp32 matrix products"
# rules = ["precision/tf32-off", "precision/amp-off"]
# lines = 'torch.set_float32_matmul_precision("high")'
# where = "once, at the start of the program"
# tolerance = 2e-2
# changes_results = "fp32 matrix products keep 10 bits of the mantissa instead of 23"
# ///
"""TF32 on GPUs that have it: Ampere and later."""

import torch
from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    program.needs_capability((8, 0), "TF32 needs an NVIDIA GPU of compute capability 8.0 or later")
    before = torch.get_float32_matmul_precision()
    if before != "highest":
        program.refuse("fp32 matrix products may use TF32 already")
    torch.set_float32_matmul_precision("high")
    program.on_undo(lambda: torch.set_float32_matmul_precision(before))
    program.changed('torch.set_float32_matmul_precision("high")')
