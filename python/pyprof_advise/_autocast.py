"""Models under autocast, for treatments."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

from .treatment import Program, device_of


def autocast(
    program: Program,
    dtype: torch.dtype,
    check_call: Callable[[], None] = lambda: None,
    *,
    says: bool = True,
) -> None:
    """Runs each model of the program under autocast; `check_call` may refuse a call.

    `says` tells whether that alone is a change that the treatment is about.
    """

    def cast(model: nn.Module) -> None:
        device = device_of(model)

        def around(forward: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **kwargs: Any) -> Any:
                check_call()
                if is_under_autocast(device):
                    program.refuse("the model runs under autocast already")
                with torch.autocast(device, dtype=dtype):
                    # Losses are computed in fp32, as they are when the loss is under autocast too.
                    return in_fp32(forward(*args, **kwargs), dtype)

            return called

        program.around_forward(model, around)
        if says:
            program.changed(f"{type(model).__name__} under autocast")

    program.each_model(cast)


def is_under_autocast(device: str) -> bool:
    """Whether autocast is on for a type of device."""
    try:
        return torch.is_autocast_enabled(device)
    except TypeError:  # Before torch 2.4.
        return torch.is_autocast_enabled() if device == "cuda" else torch.is_autocast_cpu_enabled()


def in_fp32(value: Any, dtype: torch.dtype) -> Any:
    """A value of a model with its tensors of this type in fp32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype is dtype else value
    if type(value) in (list, tuple):
        return type(value)(in_fp32(item, dtype) for item in value)
    if isinstance(value, dict):
        for name in list(value):
            value[name] = in_fp32(value[name], dtype)
    return value
