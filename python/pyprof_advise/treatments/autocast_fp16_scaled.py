# /// treatment
# title = "Mixed precision training with fp16"
# rules = ["precision/amp-off", "precision/bf16-before-ampere"]
# lines = """
# scaler = torch.amp.GradScaler()                      # once
# with torch.autocast("cuda", dtype=torch.float16):
#     output = model(inputs)
#     loss = loss_function(output, targets)
# scaler.scale(loss).backward()
# scaler.unscale_(optimizer)                           # only if gradients are clipped, before that
# scaler.step(optimizer)
# scaler.update()
# """
# where = "in place of the forward pass, backward() and the step of the optimizer"
# kind = "16 bits"
# tolerance = 5e-2
# changes_results = "most operators compute with 11 bits of mantissa and a range up to 65504, and steps whose gradients overflow are left out; compare the loss over a whole training"
# ///
"""The model runs under autocast, and a GradScaler scales its gradients; the weights stay in fp32."""

from __future__ import annotations

import torch
from pyprof_advise._autocast import autocast
from pyprof_advise._scaling import Scaling
from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    program.needs_gpu("fp16 is slow on anything but a GPU")
    if not hasattr(torch.amp, "GradScaler"):
        program.refuse("torch 2.3 or later is needed")
    # Without a step, nothing was changed that the treatment is about: inference needs no scaler.
    autocast(program, torch.float16, says=False)
    Scaling(program).install()
