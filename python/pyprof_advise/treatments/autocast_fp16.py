# /// treatment
# title = "Mixed precision with fp16"
# rules = ["precision/amp-off", "precision/bf16-before-ampere"]
# lines = """
# with torch.autocast(device_type, dtype=torch.float16):
#     output = model(inputs)
# """
# where = "around the calls of the model"
# kind = "16 bits"
# tolerance = 2e-2
# changes_results = "most operators compute with 11 bits of mantissa and a range up to 65504"
# ///
"""Inference under autocast. Training in fp16 needs a loss scaler, which is an edit of the program."""

from __future__ import annotations

from typing import Any, Callable

import torch
from pyprof_advise.treatment import Program, device_of
from torch import nn


def apply(program: Program) -> None:
    def cast(model: nn.Module) -> None:
        device = device_of(model)
        if device != "cuda":
            program.refuse("fp16 is slow on anything but a GPU")
        program.around_forward(model, lambda forward: autocast(program, forward, device))
        program.changed(f"{type(model).__name__} under autocast")

    program.each_model(cast)


def autocast(program: Program, forward: Callable[..., Any], device: str) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            program.refuse("training in fp16 needs a GradScaler, which is an edit of the program")
        if torch.is_autocast_enabled(device):
            program.refuse("the model runs under autocast already")
        with torch.autocast(device, dtype=torch.float16):
            # Losses are computed in fp32, as they are when the loss is under autocast too.
            return in_fp32(forward(*args, **kwargs))

    return called


def in_fp32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype is torch.float16 else value
    if type(value) in (list, tuple):
        return type(value)(map(in_fp32, value))
    if isinstance(value, dict):
        for name in list(value):
            value[name] = in_fp32(value[name])
    return value
