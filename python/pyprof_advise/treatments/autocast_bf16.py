# /// treatment
# title = "Mixed precision with bf16"
# rules = ["precision/amp-off", "precision/amp-partial"]
# lines = """
# with torch.autocast("cuda", dtype=torch.bfloat16):
#     output = model(inputs)
#     loss = loss_function(output, targets)
# """
# where = "around the forward pass and the loss; backward() and the optimizer stay outside"
# kind = "16 bits"
# tolerance = 5e-2
# changes_results = "most operators compute with 8 bits of mantissa; compare the loss over a whole training"
# ///
"""The model runs under autocast; its weights stay in fp32."""

from __future__ import annotations

import torch
from pyprof_advise._autocast import autocast
from pyprof_advise.treatment import Program, cuda_capability


def apply(program: Program) -> None:
    if (cuda_capability() or (8, 0)) < (8, 0):
        program.refuse("bf16 needs compute capability 8.0 or later")
    autocast(program, torch.bfloat16)
