# /// treatment
# title = "Mixed precision with bf16"
# rules = ["precision/amp-off", "precision/amp-partial"]
# lines = """
# with torch.autocast(device_type, dtype=torch.bfloat16):
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

from typing import Any, Callable

import torch
from pyprof_advise.treatment import Program, device_of
from torch import nn


def apply(program: Program) -> None:
    def cast(model: nn.Module) -> None:
        device = device_of(model)
        if device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            program.refuse("bf16 needs compute capability 8.0 or later")
        program.around_forward(model, lambda forward: autocast(program, forward, device))
        program.changed(f"{type(model).__name__} under autocast")

    program.each_model(cast)


def autocast(program: Program, forward: Callable[..., Any], device: str) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled(device):
            program.refuse("the model runs under autocast already")
        with torch.autocast(device, dtype=torch.bfloat16):
            # Losses are computed in fp32, as they are when the loss is under autocast too.
            return in_fp32(forward(*args, **kwargs))

    return called


def in_fp32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype is torch.bfloat16 else value
    if type(value) in (list, tuple):
        return type(value)(map(in_fp32, value))
    if isinstance(value, dict):
        for name in list(value):
            value[name] = in_fp32(value[name])
    return value
