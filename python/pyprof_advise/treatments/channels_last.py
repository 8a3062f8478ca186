# /// treatment
# title = "Channels-last memory format"
# rules = ["memory/layout-transposes", "layers/batch-norm-slow"]
# lines = """
# model = model.to(memory_format=torch.channels_last)
# inputs = inputs.to(memory_format=torch.channels_last)
# """
# where = "after the model is on its device, before the optimizer is made; and in the loop, for inputs"
# tolerance = 1e-3
# ///
"""Weights of convolutions and the images they get have their channels last in memory."""

from __future__ import annotations

from typing import Any, Callable

import torch
from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    def convert(model: nn.Module) -> None:
        if not any(isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)) for part in model.modules()):
            return
        model.to(memory_format=torch.channels_last)
        program.on_undo(lambda: model.to(memory_format=torch.contiguous_format))
        program.around_forward(model, converting)
        program.changed(f"{type(model).__name__}.to(memory_format=torch.channels_last)")

    program.each_model(convert)


def converting(forward: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        return forward(*map(last, args), **{name: last(value) for name, value in kwargs.items()})

    return called


def last(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if is_image else value
