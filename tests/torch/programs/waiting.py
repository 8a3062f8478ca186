"""A training loop whose host computes for 0.2 s and sleeps for 0.1 s before each step."""

import time

import torch
from common import Net, finish


def decode(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(200))


def wait_for_disk(seconds: float) -> None:
    time.sleep(seconds)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(20):
    decode(0.2)
    wait_for_disk(0.1)
    optimizer.zero_grad()
    net(torch.ones(4, 16)).square().mean().backward()
    optimizer.step()
finish(net)
