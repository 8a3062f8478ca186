"""Losses scaled for gradients in fp16, by a GradScaler around backward() and the step of the optimizer."""

from __future__ import annotations

import types
import weakref
from typing import Any, Callable

import torch
from torch import nn

from .treatment import Program

WATCHED = 4
"""Steps in which gradients are watched for changes by the program itself."""


class Scaling:
    """Scales the gradients of `backward()`, and unscales them before they are clipped or used.

    Between the two, gradients are not those of the program: one that changes them itself is refused.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._scaler: torch.amp.GradScaler | None = None
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._stepped: weakref.ref[torch.optim.Optimizer] | None = None
        self._steps = 0
        self._seen: dict[int, tuple[int, int]] = {}
        self._inside = False
        self._has_gradients = False
        self._is_unscaled = False

    def install(self) -> None:
        """Begins to scale."""
        program = self._program
        program.around(torch.amp.GradScaler, "__init__", self._scaler_made)
        program.around(torch.autograd, "backward", self._backward)
        program.around(torch.optim.Optimizer, "__init__", self._optimizer_made)
        for owner in (nn.utils, nn.utils.clip_grad):
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                program.around(owner, name, self._clip)

    def _refuse(self, why: str) -> None:
        self._program.refuse(why)

    def _scaler_made(self, original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if not self._inside and kwargs.get("enabled", True):
            self._refuse("the program has a GradScaler already")
        original(*args, **kwargs)

    def _scale(self, device: torch.device) -> torch.Tensor:
        """The factor of gradients, on a device."""
        if self._scaler is None:
            self._inside = True
            try:
                self._scaler = torch.amp.GradScaler(device.type)
            finally:
                self._inside = False
        return self._scaler.scale(torch.ones((), device=device))

    def _backward(
        self, original: Callable[..., Any], tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if kwargs.get("create_graph", args[1] if len(args) > 1 else False):
            self._refuse("the program takes gradients of gradients")
        losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else grad_tensors
        given = [None] * len(losses) if given is None else list(given)
        # The program may print the loss, so the factor scales the gradient that backward starts from.
        scaled = [self._gradient(loss, gradient) for loss, gradient in zip(losses, given)]
        result = original(losses, scaled, *args, **kwargs)
        self._has_gradients = True
        self._watch()
        return result

    def _gradient(self, loss: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor | None:
        scale = self._scale(loss.device)
        if given is not None:
            return given * scale
        # Of a loss with several elements, the original complains.
        return scale.to(loss.dtype).expand_as(loss) if loss.numel() == 1 else None

    def _optimizer_made(self, original: Callable[..., None], optimizer: Any, *args: Any, **kwargs: Any) -> None:
        original(optimizer, *args, **kwargs)
        scaling = self

        def step(optimizer: Any, closure: Any = None) -> Any:
            return scaling._step(optimizer, closure)

        # A method, because schedulers look for the function of one.
        self._program.set(optimizer, "step", types.MethodType(step, optimizer))
        self._optimizers.add(optimizer)

    def _step(self, optimizer: Any, closure: Any) -> Any:
        plain = type(optimizer).step
        if self._inside:
            return plain(optimizer)
        if closure is not None:
            self._refuse("`optimizer.step(closure)` computes gradients itself")
        if not self._has_gradients or self._scaler is None:
            return plain(optimizer)
        if self._stepped is None:
            self._check(optimizer)
            self._stepped = weakref.ref(optimizer)
        elif self._stepped() is not optimizer:
            self._refuse("the program has several optimizers, which would share one scaler")
        self._compare()
        self._inside = True
        try:
            result = self._scaler.step(optimizer)
        finally:
            self._inside = False
        self._scaler.update()
        self._has_gradients = self._is_unscaled = False
        self._steps += 1
        self._seen.clear()
        if self._steps == 1:
            self._program.changed(f"GradScaler around backward() and {type(optimizer).__name__}.step()")
        return result

    def _check(self, optimizer: Any) -> None:
        for parameter in parameters_of(optimizer):
            if type(parameter).__name__ in ("FlatParameter", "DTensor"):
                self._refuse("sharded parameters need a scaler of their own")
            if parameter.dtype is not torch.float32:
                self._refuse(f"the weights are {parameter.dtype}, and a GradScaler needs fp32".replace("torch.", ""))

    def _clip(self, original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if self._has_gradients and not self._is_unscaled and self._scaler is not None:
            wanted = {id(parameter) for parameter in given}
            held = [o for o in self._optimizers if wanted & {id(p) for p in parameters_of(o)}]
            if len(held) != 1:
                self._refuse("the program clips gradients of several optimizers, or of none")
            self._check(held[0])
            self._compare()
            self._scaler.unscale_(held[0])
            self._is_unscaled = True
        result = original(given, *args, **kwargs)
        self._watch()
        return result

    def _watch(self) -> None:
        """Notes which gradients there are, in the first steps."""
        if self._steps < WATCHED:
            self._seen = {id(p): state(p) for o in self._optimizers for p in parameters_of(o)}

    def _compare(self) -> None:
        """Refuses a program that has changed gradients since."""
        if self._steps < WATCHED and any(
            self._seen.get(id(p)) != state(p) for o in self._optimizers for p in parameters_of(o)
        ):
            self._refuse("the program changes gradients itself between backward() and the step")


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """The parameters that an optimizer has."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def state(parameter: torch.Tensor) -> tuple[int, int]:
    """Which tensor the gradient of a parameter is, and how often it was changed."""
    gradient = parameter.grad
    return (0, 0) if gradient is None else (id(gradient), gradient._version)
