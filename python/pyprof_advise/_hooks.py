"""Hooks on modules that leave no trace: not in a copy of the module, not in its pickle, not in compiled code."""

from __future__ import annotations

import gc
import inspect
import logging
from typing import TYPE_CHECKING, Any, Callable

from torch import nn

from ._compiling import is_compiling

if TYPE_CHECKING:
    from collections.abc import Iterator


_ALWAYS: dict[str, Any] = (
    {"always_call": True}
    if "always_call" in inspect.signature(nn.Module.register_forward_hook).parameters
    else {}
)


class Hook:
    """A forward hook. A module that is copied or pickled while it has one gets a method that does nothing.

    Hooks of single modules are used, never those of all modules: Dynamo guards on the latter, so that adding
    and removing them would compile the program again.
    """

    def __init__(self, act: Callable[..., None]) -> None:
        self._act = act

    def __call__(self, module: nn.Module, *args: object) -> None:
        if not is_compiling():
            self._act(module)

    def __reduce__(self) -> tuple[Any, ...]:
        # A logger takes any arguments, answers None, and is found by name wherever the pickle is read.
        return getattr, (logging.getLogger("pyprof_advise"), "debug")


class ResultHook(Hook):
    """A hook that is told what the forward has returned."""

    def __call__(self, module: nn.Module, *args: object) -> None:
        if not is_compiling():
            self._act(module, args[-1])


class Hooks:
    """Hooks that are removed together."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def before(self, module: nn.Module, act: Callable[[nn.Module], None], *, first: bool = False) -> None:
        """Calls `act` before the forward of a module, and before its other hooks if it is to be `first`."""
        self._handles.append(module.register_forward_pre_hook(Hook(act), prepend=first))

    def after(self, module: nn.Module, act: Callable[[nn.Module], None]) -> None:
        """Calls `act` after the forward of a module, also when that raises an exception (since torch 2.1)."""
        self._handles.append(module.register_forward_hook(Hook(act), **_ALWAYS))

    def result(self, module: nn.Module, act: Callable[[nn.Module, Any], None]) -> None:
        """Calls `act` with the module and what its forward has returned."""
        self._handles.append(module.register_forward_hook(ResultHook(act)))

    def remove(self) -> None:
        """Removes them all."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def outermost_modules() -> list[nn.Module]:
    """All modules of the program that are not part of another one. Takes some milliseconds."""
    modules = live_objects(nn.Module)
    inner = {id(child) for module in modules for child in children(module)}
    return [module for module in modules if id(module) not in inner]


def live_objects(kind: type) -> list[Any]:
    """All objects of a class in the program that Python's garbage collector knows, frozen ones too."""
    # `type`, because `isinstance` asks proxies for their class, which may do anything.
    def of_kind() -> list[Any]:
        return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]

    if gc.get_freeze_count() == 0:
        return of_kind()
    # Frozen objects are in no generation. Afterwards what was made since is frozen as well.
    gc.unfreeze()
    try:
        return of_kind()
    finally:
        gc.freeze()


def children(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that a module holds; none of one whose constructor has not finished."""
    held = module.__dict__.get("_modules") or {}
    return (child for child in held.values() if child is not None)
