"""A program with a profiler of its own, which is left alone."""

import sys

import torch
from common import STEPS, Net, finish

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def step() -> None:
    optimizer.zero_grad()
    net(torch.ones(4, 16)).square().mean().backward()
    optimizer.step()


for _ in range(4):
    step()
with torch.profiler.profile(record_shapes=True) as profiler:
    for _ in range(STEPS):
        step()
        profiler.step()
profiler.export_chrome_trace(sys.argv[1])
finish(net)
