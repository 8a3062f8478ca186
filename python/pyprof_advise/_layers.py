"""Names the layers of a program while a window is open: a range `layer:NAME` around every module call."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ._hooks import Hooks, outermost_modules

if TYPE_CHECKING:
    from torch import nn

_WRAPPED = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Names under which wrappers hold the module that they wrap."""
_WRAPPERS = frozenset(
    {
        "DataParallel",
        "DistributedDataParallel",
        "FullyShardedDataParallel",
        "OptimizedModule",
        "CheckpointWrapper",
        "GraphModule",
    }
)
"""Classes of those wrappers: their calls are no layers."""


class Range(Protocol):
    """A range of the profiler."""

    def __enter__(self) -> object: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> object: ...


def plain_name(name: str) -> str:
    """A name of `named_modules()` without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPED)


def is_wrapper(module: nn.Module) -> bool:
    """Whether a module only wraps another one."""
    return type(module).__name__ in _WRAPPERS


class Layers:
    """Ranges around module calls, from `install` to `remove`."""

    def __init__(self, make_range: Callable[[str], Range]) -> None:
        self._make_range = make_range
        self._hooks = Hooks()
        self._threads = threading.local()
        self._stacks: list[list[tuple[nn.Module, Range]]] = []

    def install(self) -> None:
        """Begins to name layers."""
        seen: set[int] = set()
        for root in outermost_modules():
            for name, module in root.named_modules():
                if id(module) in seen or is_wrapper(module):
                    continue
                seen.add(id(module))
                self._name(module, plain_name(name) or type(module).__name__)

    def remove(self) -> None:
        """Ends to name layers, and closes the ranges that are open."""
        self._hooks.remove()
        for stack in self._stacks:
            while stack:
                stack.pop()[1].__exit__(None, None, None)

    def _name(self, module: nn.Module, name: str) -> None:
        text = f"layer:{name}"

        def enter(module: nn.Module) -> None:
            entered = self._make_range(text)
            entered.__enter__()
            self._stack().append((module, entered))

        # Modules of TorchScript take no hooks.
        with contextlib.suppress(Exception):
            self._hooks.before(module, enter)
            self._hooks.after(module, self._leave)

    def _leave(self, module: nn.Module) -> None:
        stack = self._stack()
        if not any(opened is module for opened, _ in stack):
            return
        while stack:
            opened, entered = stack.pop()
            entered.__exit__(None, None, None)
            if opened is module:
                return

    def _stack(self) -> list[tuple[nn.Module, Range]]:
        """The open ranges of this thread."""
        try:
            return self._threads.stack  # type: ignore[no-any-return]
        except AttributeError:
            stack = self._threads.stack = []
            self._stacks.append(stack)
            return stack
