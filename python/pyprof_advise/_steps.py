"""Where steps come from: calls of an optimizer; without one, calls of a model, or replays of a CUDA graph."""

from __future__ import annotations

import contextlib
import functools
import statistics
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable

import torch
from torch import nn

from ._compiling import is_compiling
from ._hooks import Hooks, outermost_modules
from ._settings import SKIP

STEADY = 0.1
"""Steps are steady when the median of three differs less than this from that of the three before."""
PATIENCE = 5 * SKIP
"""Steps after which recording begins although steps are not steady."""
QUIET = 3
"""Steps without a new compilation before recording begins."""
MAX_STREAMS = 64
"""Most optimizers, or models, that are counted."""
CALLS_WITH_GRADIENTS = 64
"""Calls of a model that compute gradients, after which an optimizer is no longer expected."""


class Stream:
    """Steps of one kind: of one optimizer, of one outermost module, or of one CUDA graph, in one thread."""

    def __init__(self, what: str, *, is_of_module: bool = False, is_of_graph: bool = False) -> None:
        self.what = what
        self.is_of_module = is_of_module
        self.is_of_graph = is_of_graph
        self.count = 0
        self._ends: deque[float] = deque(maxlen=7)
        self._graphs = 0
        self._quiet_since = 0

    def step(self) -> None:
        """Counts a step that has just ended."""
        self.count += 1
        self._ends.append(time.perf_counter())
        graphs = compiled_graphs()
        if graphs != self._graphs:
            self._graphs = graphs
            self._quiet_since = self.count

    def is_warm(self, skip: int | None) -> bool:
        """Whether recording may begin: after `skip` steps, else when steps have become alike."""
        if skip is not None:
            return self.count >= skip
        if self.count < SKIP or self.count - self._quiet_since < QUIET:
            return False
        return self.count >= PATIENCE or self.is_steady()

    def _lengths(self) -> list[float]:
        """Of the last six steps, in seconds."""
        ends = list(self._ends)
        return [after - before for before, after in zip(ends, ends[1:])]

    def median_ns(self) -> int | None:
        """The median of the last three steps; None before there are as many."""
        lengths = self._lengths()[-3:]
        return round(1e9 * statistics.median(lengths)) if len(lengths) == 3 else None

    def is_steady(self) -> bool:
        """Whether the last three steps took as long as the three before."""
        lengths = self._lengths()
        if len(lengths) < 6:
            return False
        before, now = statistics.median(lengths[-6:-3]), statistics.median(lengths[-3:])
        return abs(now - before) <= STEADY * before


def compiled_graphs() -> int:
    """The number of graphs that torch.compile has made."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])


class OptimizerSteps:
    """Calls `on_step` after every step of every optimizer."""

    def __init__(self, on_step: Callable[[Stream], None]) -> None:
        self._on_step = on_step
        self._streams: dict[tuple[int, int], Stream] = {}
        self._handle: Any = None

    def install(self) -> None:
        """Begins to count."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handle = register_optimizer_step_post_hook(self._stepped)

    def remove(self) -> None:
        """Removes the hook."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, optimizer: object, _args: object, _kwargs: object) -> None:
        if is_capturing():
            return
        key = (threading.get_ident(), id(optimizer))
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                return
            stream = self._streams[key] = Stream(f"{type(optimizer).__name__}.step()")
        stream.step()
        self._on_step(stream)


class ModuleSteps:
    """Calls `on_step` before every call of a model: a step of a program without an optimizer.

    A model is what the program moves to a device or a mode (`model.to(device)`, `model.eval()`), or compiles.
    """

    def __init__(self, on_step: Callable[[Stream], None]) -> None:
        self._on_step = on_step
        self.on_call: Callable[[nn.Module], None] | None = None
        """Called before every call of a model, also where it is not a step."""
        self.on_result: Callable[[nn.Module, Any], None] | None = None
        """Called with what a model has returned to the program."""
        self._hooks = Hooks()
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._patched: list[tuple[str, Any]] = []
        self._depth = threading.local()
        self._inside = threading.local()
        self._with_gradients: dict[tuple[int, int], int] = {}
        self._streams: dict[tuple[int, int], Stream] = {}

    def install(self) -> None:
        """Begins to look for models, and to count their calls."""
        for name, is_model in (("train", None), ("_apply", None), ("__init__", "OptimizedModule")):
            self._watch(name, is_model)

    def remove(self) -> None:
        """Stops looking and counting."""
        for name, original in self._patched:
            setattr(nn.Module, name, original)
        self._patched.clear()
        self._hooks.remove()
        self._inside = threading.local()

    def is_inside(self) -> bool:
        """Whether this thread is in a call of a model, as far as calls are counted."""
        return getattr(self._inside, "model", None) is not None

    def _watch(self, name: str, class_name: str | None) -> None:
        """Learns of models by calls of a method; inside of it, it is called for every module in the model."""
        original = getattr(nn.Module, name)
        depth = self._depth

        @functools.wraps(original)
        def method(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(module, *args, **kwargs)
            is_outermost = not getattr(depth, "inside", False)
            depth.inside = True
            try:
                return original(module, *args, **kwargs)
            finally:
                if is_outermost:
                    depth.inside = False
                if class_name is None and is_outermost or type(module).__name__ == class_name:
                    self._learn(module)

        setattr(nn.Module, name, method)
        self._patched.append((name, original))

    def _learn(self, model: nn.Module) -> None:
        if len(self._models) < MAX_STREAMS and model not in self._models:
            # Modules of TorchScript take no hooks.
            with contextlib.suppress(Exception):
                self._models.add(model)
                self._hooks.before(model, self._called)
                if self.on_result is not None:
                    self._hooks.result(model, self._told)
                self._hooks.after(model, self._returned)

    def _called(self, model: nn.Module) -> None:
        if self.is_inside():
            return
        self._inside.model = weakref.ref(model)
        if self.on_call is not None:
            self.on_call(model)
        if is_capturing():
            return
        key = (threading.get_ident(), id(model))
        if torch.is_grad_enabled() and self._expects_optimizer(key):
            return
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                return
            stream = Stream(f"calls of {type(model).__name__}", is_of_module=True)
            self._streams[key] = stream
        stream.step()
        self._on_step(stream)

    def _told(self, model: nn.Module, result: object) -> None:
        outermost = getattr(self._inside, "model", None)
        if self.on_result is not None and outermost is not None and outermost() is model:
            self.on_result(model, result)

    def _returned(self, model: nn.Module) -> None:
        outermost = getattr(self._inside, "model", None)
        if outermost is not None and outermost() in (model, None):
            self._inside.model = None

    def _expects_optimizer(self, key: tuple[int, int]) -> bool:
        """Whether a call that computes gradients is to be followed by an optimizer: not after many of them."""
        calls = self._with_gradients.get(key, 0) + 1
        if calls == 1 and len(self._with_gradients) >= MAX_STREAMS:
            return True
        self._with_gradients[key] = calls
        return calls < CALLS_WITH_GRADIENTS


def is_capturing() -> bool:
    """Whether a CUDA graph records what is launched, instead of running it."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class ReplaySteps:
    """Calls `on_step` before every replay of a CUDA graph by the program: not by a call of a model.

    They are steps while neither a model is called nor an optimizer: both were only called before the capture.
    """

    def __init__(self, on_step: Callable[[Stream], None], is_inside: Callable[[], bool]) -> None:
        self._on_step = on_step
        self._is_inside = is_inside
        self._streams: dict[tuple[int, int], Stream] = {}
        self._original: Any = None

    def install(self) -> None:
        """Begins to count."""
        original = self._original = torch.cuda.CUDAGraph.replay

        @functools.wraps(original)
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._replays(graph)
            return original(graph, *args, **kwargs)

        torch.cuda.CUDAGraph.replay = replay  # type: ignore[method-assign]

    def remove(self) -> None:
        """Stops counting."""
        if self._original is not None:
            torch.cuda.CUDAGraph.replay = self._original  # type: ignore[method-assign]
            self._original = None

    def restart(self) -> None:
        """Counts anew, because there was a step of another kind."""
        self._streams.clear()

    def _replays(self, graph: object) -> None:
        if self._is_inside():
            return
        key = (threading.get_ident(), id(graph))
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                return
            stream = Stream("replays of a CUDA graph", is_of_module=True, is_of_graph=True)
            self._streams[key] = stream
        stream.step()
        self._on_step(stream)


class Boundary:
    """Calls `reached` once, at the next event that lies between two steps.

    An optimizer calls its hooks inside a range of its own, where no range of a step may begin. The next call of
    a model, or the next batch asked of a DataLoader, is outside, and belongs to the next step. Where models are
    called inside of the optimizer only (LBFGS), that call has to do. Where an optimizer steps again without either,
    because the program calls parts of its model (`agent.actor(x)`), clearing gradients and `backward()` count too.
    """

    def __init__(self, reached: Callable[[], None]) -> None:
        self._reached = reached
        self._thread: int | None = None
        self._hooks: Hooks | None = None
        self._patched: list[tuple[type, str, Any]] = []
        self._is_awaited = False
        self._was_missed = False

    def await_in(self, thread: int) -> None:
        """Waits for the event in a thread."""
        if self._is_awaited and thread == self._thread and not self._was_missed:
            self._was_missed = True
            self._watch(torch.optim.Optimizer, "zero_grad")
            self._watch(torch.Tensor, "backward")
        self._thread = thread
        self._is_awaited = True
        if self._hooks is not None:
            return
        self._hooks = Hooks()
        for model in outermost_modules():
            with contextlib.suppress(Exception):
                self._hooks.before(model, self._happened, first=True)
        loaders = sys.modules.get("torch.utils.data.dataloader")
        if loaders is not None:
            self._watch(loaders._BaseDataLoaderIter, "__next__")

    def _watch(self, owner: type, name: str) -> None:
        """Waits for calls of a method too."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            self._happened()
            return original(*args, **kwargs)

        setattr(owner, name, method)
        self._patched.append((owner, name, original))

    def forget(self) -> None:
        """Stops waiting, and removes the hooks."""
        self._is_awaited = self._was_missed = False
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        for owner, name, original in self._patched:
            setattr(owner, name, original)
        self._patched.clear()

    def _happened(self, _model: object = None) -> None:
        if self._is_awaited and threading.get_ident() == self._thread:
            self._is_awaited = False
            self._reached()
