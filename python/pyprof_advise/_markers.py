"""The names of NVIDIA's PyProf: ranges that say which function is called, with which arguments.

A program written for PyProf needs no change but `import pyprof_advise as pyprof`. Under nsys, or while
`pyprof-advise run` records, every call gets two ranges: the call stack, then module, operator and arguments.
Otherwise a call costs one comparison.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
import traceback
from types import FrameType
from typing import Any, Callable, TypeVar

from . import _state

_UNDER_NSYS = "NSYS_PROFILING_SESSION_ID" in os.environ
_HERE = os.path.dirname(os.path.abspath(__file__))
_MAX_TEXT = 100
"""Longest text of an argument that is no tensor or number."""
_NOT_CALLS = frozenset(
    "arange compile device dtype enable_grad finfo from_numpy get_default_dtype get_rng_state iinfo "
    "inference_mode initial_seed is_grad_enabled is_storage is_tensor load manual_seed no_grad "
    "is_inference_mode_enabled save seed set_default_dtype set_grad_enabled set_num_threads set_printoptions "
    "set_rng_state typename unify_type_list".split()
)
"""Names in `torch` that start no work, or that other code takes apart."""
_HELPERS = frozenset(
    "assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function has_torch_function_unary "
    "has_torch_function_variadic".split()
)
"""Names in `torch.nn.functional` that are no operators."""
_PLUMBING = frozenset({"_wrapped_call_impl", "__call__"})
"""Functions of torch that stand between a module and its `forward`."""
_METHODS = (
    "__add__ __div__ __truediv__ __floordiv__ __iadd__ __imul__ __isub__ __itruediv__ __matmul__ __mul__ "
    "__neg__ __pow__ __radd__ __rmul__ __rsub__ __rtruediv__ __sub__ add add_ addmm bmm clamp clamp_ clone "
    "contiguous copy_ cpu cuda div div_ exp float half index_select item log masked_fill masked_fill_ "
    "matmul max mean min mm mul mul_ norm permute pow repeat reshape sigmoid softmax sqrt sub sub_ sum tanh "
    "to transpose type type_as zero_".split()
)
"""Methods of tensors that get ranges."""

_options: dict[str, bool] = {"on": False, "function_stack": False}

F = TypeVar("F", bound=Callable[..., Any])
Module = TypeVar("Module")


def init(*_arguments: object, enable_function_stack: bool = False) -> None:
    """Puts ranges around the functions of `torch.nn.functional`, `torch`, and the methods of tensors.

    `enable_function_stack` also records which functions of the program led to a call.
    """
    import torch
    import torch.nn.functional as functional

    _options["function_stack"] = enable_function_stack
    if _options["on"]:
        return
    _options["on"] = True
    for name, value in list(vars(functional).items()):
        if not name.startswith("_") and name not in _HELPERS and inspect.isroutine(value):
            _put(functional, name, "torch.nn.functional")
    for name, value in list(vars(torch).items()):
        is_call = inspect.isbuiltin(value) and not name.startswith("_") and not name.startswith("is_")
        if is_call and name not in _NOT_CALLS:
            _put(torch, name, "torch")
    for name in _METHODS:
        if hasattr(torch.Tensor, name):
            _put(torch.Tensor, name, "Tensor")


def nvtx_init(*arguments: object, enable_function_stack: bool = False) -> None:
    """Another name of `init`, as in apex."""
    init(*arguments, enable_function_stack=enable_function_stack)


def wrap(owner: Any, name: str) -> None:
    """Puts ranges around a function or method of the program: `wrap(Foo, "forward")`."""
    _put(owner, name, getattr(owner, "__name__", type(owner).__name__))


def annotate(model: Module) -> Module:
    """Puts a range `layer:NAME` around every module of a model, from its name in `named_modules()`."""
    from ._hooks import Hooks
    from ._layers import is_wrapper, plain_name

    hooks = Hooks()
    open_ranges: list[tuple[object, Any]] = []
    for name, module in model.named_modules():  # type: ignore[attr-defined]
        if is_wrapper(module):
            continue
        text = f"layer:{plain_name(name) or type(module).__name__}"

        def enter(module: object, text: str = text) -> None:
            if is_active():
                open_ranges.append((module, _push(text)))

        def leave(module: object) -> None:
            while open_ranges and any(opened is module for opened, _ in open_ranges):
                open_ranges.pop()[1]()

        hooks.before(module, enter)
        hooks.after(module, leave)
    return model


def is_active() -> bool:
    """Whether anything records the ranges."""
    return _UNDER_NSYS or _state.is_detailed


def _put(owner: Any, name: str, module: str) -> None:
    """Replaces a function by one that has ranges around it; a class keeps what kind of function it is."""
    original = getattr(owner, name)
    if getattr(original, "_pyprof_advise", False):
        return
    held = inspect.getattr_static(owner, name)
    replacement: Any = _with_ranges(original, module, name)
    if inspect.isclass(owner) and isinstance(held, (staticmethod, classmethod)):
        replacement = staticmethod(replacement)
    setattr(owner, name, replacement)


def _with_ranges(function: F, module: str, name: str) -> F:
    from ._compiling import is_compiling

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not is_active():
            return function(*args, **kwargs)
        end_trace = _push(_trace_marker(sys._getframe(1)))
        end_call = _push(_call_marker(module, name, args, kwargs))
        try:
            return function(*args, **kwargs)
        finally:
            end_call()
            end_trace()

    call._pyprof_advise = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _push(text: str) -> Callable[[], object]:
    """Begins a range; returns what ends it."""
    import torch

    from ._windows import profiler_range

    if _UNDER_NSYS:
        torch.cuda.nvtx.range_push(text)
        return torch.cuda.nvtx.range_pop
    entered = profiler_range(text)
    entered.__enter__()
    return lambda: entered.__exit__(None, None, None)


def _trace_marker(frame: FrameType | None) -> str:
    """The lines of the program that led to a call, outermost first."""
    frames = [
        entry
        for entry in traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
        if not entry.filename.startswith((_HERE, "<"))
    ]
    frames.reverse()
    marker: dict[str, object] = {"traceMarker": [f"{entry.filename}:{entry.lineno}" for entry in frames]}
    if _options["function_stack"]:
        marker["funcStack"] = _function_stack(frame)
    return str(marker)


def _function_stack(frame: FrameType | None) -> str:
    """`/main/Net::_call_impl/Net::forward/Linear::_call_impl(3)`: the functions that led to a call, outermost
    first; a module has its number among those of its class in the module that calls it."""
    frames: list[FrameType] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, "<")) and frame.f_code.co_name not in _PLUMBING:
            frames.append(frame)
        frame = frame.f_back
    parts: list[str] = []
    caller: Any = None
    for frame in reversed(frames):
        function = frame.f_code.co_name
        owner = frame.f_locals.get("self")
        if owner is None:
            parts.append("main" if function == "<module>" else function)
            continue
        part = f"{type(owner).__name__}::{function}"
        if function == "_call_impl":
            part += _number(owner, caller)
            caller = owner
        parts.append(part)
    return "/" + "/".join(parts)


def _number(module: Any, caller: Any) -> str:
    """`(3)` for the third module of its class in the one that calls it, nothing for the first."""
    if caller is None:
        return ""
    alike = [other for other in caller.modules() if type(other) is type(module)]
    number = next((at for at, other in enumerate(alike, start=1) if other is module), 1)
    return f"({number})" if number > 1 else ""


def _call_marker(module: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Module, operator, and what the arguments are."""
    described: list[dict[str, object]] = []
    for value in args:
        _describe("", value, described)
    for key, value in kwargs.items():
        _describe(key, value, described)
    return str({"mod": module, "op": name, "args": described})


def _describe(name: str, value: Any, described: list[dict[str, object]]) -> None:
    import torch

    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        shape = tuple(int(size) for size in value.shape)
        described.append({"name": name, "type": "tensor", "shape": shape, "dtype": dtype})
    elif isinstance(value, float) and not math.isfinite(value):
        described.append({"name": name, "type": "float", "value": str(value)})
    elif value is None or isinstance(value, (bool, int, float)):
        described.append({"name": name, "type": type(value).__name__, "value": value})
    elif isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        for item in value:
            _describe(name, item, described)
    elif isinstance(value, (list, tuple)) and all(isinstance(item, (int, float)) for item in value):
        described.append({"name": name, "type": type(value).__name__, "value": value})
    elif isinstance(value, (str, torch.dtype, torch.device)):
        described.append({"name": name, "type": type(value).__name__, "value": str(value)[:_MAX_TEXT]})
