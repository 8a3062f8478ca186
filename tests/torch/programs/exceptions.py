"""Modules that raise, a model that is copied and pickled while it is recorded, and an exit status."""

import copy
import pickle

import torch
from common import STEPS, Net, finish


class Failing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.net(x)
        raise ValueError("expected")


net = Net()
failing = Failing()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(STEPS):
    optimizer.zero_grad()
    try:
        failing(torch.ones(4, 16))
    except ValueError:
        net(torch.ones(4, 16)).square().mean().backward()
    copies = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    assert b"pyprof_advise._" not in pickle.dumps(net)
    for same in copies:
        assert torch.equal(same(torch.ones(4, 16)), net(torch.ones(4, 16)))
    optimizer.step()
finish(net, failing)
raise SystemExit(7)
