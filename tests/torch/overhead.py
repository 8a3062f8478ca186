"""What counting steps costs a program outside the recorded windows, and that nothing of it stays.

Prints JSON: microseconds per optimizer step and per call of a model, and the same in a step of 50
operators.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).with_name("programs")))
from common import Net
from pyprof_advise._capture import Capture
from pyprof_advise._record import Record
from pyprof_advise._settings import Settings

WARM = 130
CALLS = 100
ROUNDS = 30


def round_of(act: Callable[[], Any]) -> float:
    """CPU time of this thread in microseconds per call; time that other programs take is not in it."""
    began = time.thread_time()
    for _ in range(CALLS):
        act()
    return (time.thread_time() - began) / CALLS * 1e6


class Step:
    """A step of an optimizer, with the operators of a model before it."""

    def __init__(self, operators: int) -> None:
        self.weight = nn.Parameter(torch.ones(4))
        self.weight.grad = torch.ones(4)
        self.optimizer = torch.optim.SGD([self.weight], lr=0.0)
        self.operators = operators

    def __call__(self) -> None:
        for _ in range(self.operators):
            self.weight.detach().add(1.0)
        self.optimizer.step()


class Call:
    """A call of a model without gradients."""

    def __init__(self) -> None:
        self.net = Net().eval()
        self.input = torch.ones(1, 16)

    def __call__(self) -> None:
        with torch.no_grad():
            self.net(self.input)


def functions() -> list[object]:
    """What hooks of this package replace or add to."""
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    owners: list[tuple[object, str]] = [
        (nn.Module, "train"), (nn.Module, "_apply"), (nn.Module, "__init__"),
        (dataloader._BaseDataLoaderIter, "__init__"), (dataloader._BaseDataLoaderIter, "__next__"),
        (torch.autograd.profiler.profile, "_prepare_trace"), (torch.autograd.profiler.emit_nvtx, "__enter__"),
    ]  # fmt: skip
    return [getattr(owner, name) for owner, name in owners] + [len(optimizer._global_optimizer_post_hooks)]


def cost(act: Callable[[], Any], settings: Settings) -> float:
    """The difference between the shortest rounds with and without a capture, which alternate."""
    plain, counted = [], []
    for _ in range(ROUNDS):
        plain.append(round_of(act))
        capture = Capture(settings, Record(settings.folder))
        capture.install()
        if isinstance(act, Call):
            act.net.eval()  # By this, the capture learns of the model.
        # The state is written at step 128 and next at step 256.
        for _ in range(WARM):
            act()
        counted.append(round_of(act))
        capture.stop("ended")
    return min(counted) - min(plain)


def main() -> None:
    """Measures with and without a capture that waits for a step that never comes."""
    torch.set_num_threads(1)
    before = functions()
    acts = {
        "optimizer_step_us": Step(1),
        "optimizer_step_of_many_operators_us": Step(50),
        "model_call_us": Call(),
    }
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder), skip=1_000_000_000)
        costs = {name: cost(act, settings) for name, act in acts.items()}
    assert functions() == before
    net = acts["model_call_us"].net
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in net.modules())
    assert hooks == 0, hooks
    print(json.dumps(costs))


main()
