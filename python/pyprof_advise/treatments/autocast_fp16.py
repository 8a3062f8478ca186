# /// treatment
# title = "Mixed precision with fp16"
# rules = ["precision/amp-off", "precision/bf16-before-ampere"]
# lines = """
# with torch.autocast("cuda", dtype=torch.float16):
#     output = model(inputs)
# """
# where = "around the calls of the model"
# kind = "16 bits"
# tolerance = 2e-2
# changes_results = "most operators compute with 11 bits of mantissa and a range up to 65504"
# ///
"""Inference under autocast. Training needs a GradScaler: `autocast_fp16_scaled`."""

from __future__ import annotations

import torch
from pyprof_advise._autocast import autocast
from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    program.needs_gpu("fp16 is slow on anything but a GPU")

    def check_call() -> None:
        if torch.is_grad_enabled():
            program.refuse("training in fp16 needs a GradScaler, which `autocast-fp16-scaled` has")

    autocast(program, torch.float16, check_call)
