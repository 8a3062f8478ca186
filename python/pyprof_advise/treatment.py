"""What a treatment may do to the program: everything through here can be undone."""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import Any, Callable

import torch
from torch import nn

from ._compiling import is_compiling
from ._hooks import children, outermost_modules

WRAPPERS = ("DistributedDataParallel", "DataParallel")
"""Modules that hold the model as `module`."""


class Refused(Exception):
    """A treatment does not apply to the program; the message says why."""


class Forward:
    """Stands in for the `forward` of one module. A copy of the module gets one of its own."""

    def __init__(self, module: nn.Module, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._module = weakref.ref(module)
        self._make = make
        original = module.forward
        self._call = make(original)
        functools.update_wrapper(self, original, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module = self._module()
        copied = memo.get(id(module))
        return self if copied is None else Forward._of_copy(copied, self._make)

    @staticmethod
    def _of_copy(module: nn.Module, make: Callable[..., Any]) -> Forward:
        # The copy may have the attributes of the original by now.
        module.__dict__.pop("forward", None)
        return Forward(module, make)

    def __reduce__(self) -> tuple[Any, ...]:
        module: Any = self._module()
        return functools.partial, (type(module).forward, module)


class Program:
    """The program to treat."""

    def __init__(self, on_refusal: Callable[[str], None] | None = None) -> None:
        self.changes: dict[str, int] = {}
        """What was changed, and how often. A treatment that changed nothing was not tried."""
        self.own_lines: list[str] = []
        """The lines that have the same effect, where they depend on the program."""
        self._on_refusal = on_refusal
        self._undo: list[Callable[[], object]] = []
        self._acts: list[Callable[[nn.Module], None]] = []
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def changed(self, what: str) -> None:
        """Notes that something was changed: `AdamW(fused=True)`."""
        self.changes[what] = self.changes.get(what, 0) + 1

    def lines(self, lines: str) -> None:
        """Says which lines have the same effect in this program, in place of those in the metadata."""
        if lines not in self.own_lines:
            self.own_lines.append(lines)

    def refuse(self, why: str) -> None:
        """Says that the treatment does not apply, which ends the run."""
        if self._on_refusal is not None:
            self._on_refusal(why)
        raise Refused(why)

    def needs_gpu(self, why: str) -> None:
        """Refuses where torch has no GPU."""
        if not torch.cuda.is_available():
            self.refuse(why)

    def needs_capability(self, least: tuple[int, int], why: str) -> None:
        """Refuses where there is no GPU of NVIDIA with this compute capability or a higher one."""
        capability = cuda_capability()
        if capability is None or capability < least:
            self.refuse(why)

    def undo(self) -> None:
        """Undoes everything, the last change first."""
        while self._undo:
            self._undo.pop()()
        self._acts.clear()

    def on_undo(self, act: Callable[[], object]) -> None:
        """Calls `act` when the treatment is undone."""
        self._undo.append(act)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute."""
        missing = object()
        before = vars(owner).get(name, missing) if hasattr(owner, "__dict__") else getattr(owner, name)
        if before is missing and not isinstance(owner, (type, nn.Module)):
            # Attributes that are computed, such as those of `torch.backends`.
            before = getattr(owner, name)

        def undo() -> None:
            if before is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        setattr(owner, name, value)
        self._undo.append(undo)

    def around(self, owner: Any, name: str, act: Callable[..., Any]) -> None:
        """Calls `act(original, *args, **kwargs)` in place of a function or a method of a class."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if is_compiling() else act(original, *args, **kwargs)

        self.set(owner, name, replaced)

    def arguments(self, owner: type, choose: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """Changes arguments of a constructor.

        `choose` gets those that the program passes, by name, and returns those to pass instead or in addition.
        """
        signature = inspect.signature(owner.__init__)  # type: ignore[misc]

        def act(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return original(*args, **kwargs)  # The program's own mistake.
            chosen = choose(dict(bound.arguments))
            if chosen:
                bound.arguments.update(chosen)
                shown = ", ".join(f"{name}={value}" for name, value in chosen.items())
                self.changed(f"{owner.__name__}({shown})")
                self.lines(f"{owner.__name__}(..., {shown})")
            return original(*bound.args, **bound.kwargs)

        self.around(owner, "__init__", act)

    def each_model(self, act: Callable[[nn.Module], None]) -> None:
        """Calls `act` with each model of the program, once, before its second call at the latest.

        A model is an outermost module with parameters that an optimizer gets, or that is called.
        """
        if not self._acts:
            from torch.optim import Optimizer

            self.around(Optimizer, "__init__", self._optimizer)
        self._acts.append(act)

    def around_forward(
        self, module: nn.Module, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Calls `make(forward)` in place of the forward of a module."""
        self.set(module, "forward", Forward(module, make))

    def model_called(self, module: nn.Module) -> None:
        """The program calls a model."""
        if self._acts and any(True for _ in module.parameters()):
            self._treat(module)

    def _optimizer(self, original: Callable[..., None], optimizer: Any, *args: Any, **kwargs: Any) -> None:
        original(optimizer, *args, **kwargs)
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for module in outermost_modules():
            if any(id(parameter) in held for parameter in module.parameters()):
                self._treat(module)

    def _treat(self, module: nn.Module) -> None:
        for model in models_in(module):
            if model not in self._seen:
                self._seen.add(model)
                for act in self._acts:
                    act(model)


def models_in(module: nn.Module) -> list[nn.Module]:
    """The modules that are called: those inside of wrappers, and of a module that only holds a training loop."""
    names = {kind.__name__ for kind in type(module).__mro__}
    if names & set(WRAPPERS):
        return models_in(module.module)  # type: ignore[arg-type]
    if "LightningModule" in names:
        held = [child for child in children(module) if any(True for _ in child.parameters())]
        return [model for child in held for model in models_in(child)]
    return [module]


def cuda_capability() -> tuple[int, int] | None:
    """The compute capability of the GPU; None without one of NVIDIA."""
    if not torch.cuda.is_available() or torch.version.hip is not None:
        return None
    major, minor = torch.cuda.get_device_capability()
    return int(major), int(minor)


def device_of(module: nn.Module) -> str:
    """The type of the device of a module: `cuda`."""
    for parameter in module.parameters():
        return parameter.device.type
    return "cpu"
