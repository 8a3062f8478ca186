"""The first values that a program computes, so that two runs of it can be compared."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ._compiling import is_compiling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

MOST = 8
"""Most values that are kept."""
DEEPEST = 4
"""How deep in the output of a model tensors are looked for."""


class Values:
    """What `backward()` is called on; in a program without gradients, the norm of what its model returns.

    Values are copied where they are computed and read at the end, so that the program never waits for them.
    """

    def __init__(self) -> None:
        self._losses: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] = []
        self._original: Any = None

    def install(self) -> None:
        """Begins to watch `backward()`."""
        original = self._original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and len(self._losses) < MOST:
                self._keep(self._losses, tensors)
            return original(tensors, *args, **kwargs)

        torch.autograd.backward = backward

    def remove(self) -> None:
        """Stops watching."""
        if self._original is not None:
            torch.autograd.backward = self._original
            self._original = None

    def returned(self, _model: nn.Module, result: object) -> None:
        """Keeps the norm of what a model has returned to a program that computes no gradients."""
        if not torch.is_grad_enabled() and len(self._outputs) < MOST:
            self._keep(self._outputs, result)

    def read(self) -> dict[str, Any] | None:
        """The values, and what they are; None where there are none. Waits for the GPU."""
        for what, kept in (("loss", self._losses), ("output", self._outputs)):
            if kept:
                # JSON has no word for what is not a number.
                return {"what": what, "values": [str(float(value)) for value in kept]}
        return None

    def _keep(self, kept: list[torch.Tensor], value: object) -> None:
        try:
            with torch.no_grad():
                found = [tensor.detach() for tensor in tensors(value)]
                if len(found) == 1 and found[0].numel() == 1:
                    kept.append(found[0].double().reshape(()).clone())
                elif found:
                    norms = [tensor.double().norm().to(found[0].device) for tensor in found]
                    kept.append(torch.stack(norms).norm())
        except Exception:  # Tensors of a kind that has no norm; the program must not notice.
            kept.append(torch.tensor(float("nan")))


def tensors(value: object, depth: int = 0) -> Iterator[torch.Tensor]:
    """The floating-point tensors in a structure."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif depth < DEEPEST:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for part in value:
                yield from tensors(part, depth + 1)
