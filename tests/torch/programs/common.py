"""What the programs share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import nn

STEPS = 16

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.gelu(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Graph(torch.cuda.CUDAGraph):
    """Stands for a CUDA graph where there is no GPU: its `replay` is that of torch, and finds all that it needs."""

    _tracker = None
    _retained = SimpleNamespace(sync_before_fire=False)
    _has_graph_exec = True
    _replay_start_hooks = _replay_end_hooks = {}


def graph_of_a_product(weight: torch.Tensor) -> Graph:
    """A graph that multiplies by the weight."""
    torch._C._CUDAGraph.replay = lambda _graph: torch.ones(4, 16) @ weight.t()
    return torch._C._CUDAGraph.__new__(Graph)


def needs(module: str, name: str | None = None) -> None:
    """Ends the program, and its test, where a module or a name in it is not installed."""
    try:
        found = importlib.import_module(module)
        name is None or getattr(found, name)
    except (ImportError, AttributeError):
        print(f"skipped: {module} {name or ''} is not installed")
        raise SystemExit(0) from None


def training_step(net: nn.Module) -> Callable[[], None]:
    """A function that trains the module for one step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.ones(4, 16)).square().mean().backward()
        optimizer.step()

    return step


def finish(*modules: nn.Module) -> None:
    """Prints what the program has computed, and whether hooks are left."""
    total = sum(parameter.double().sum().item() for module in modules for parameter in module.parameters())
    hooks = sum(
        len(part._forward_hooks) + len(part._forward_pre_hooks)
        for module in modules
        for part in module.modules()
        if type(part).__module__ in ("common", "torch.nn.modules.linear")
    )
    print(f"result {total!r}, {hooks} hooks")
