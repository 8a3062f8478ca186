"""Three threads that train a model each; steps are those of one of them."""

import threading

import torch
from common import STEPS, Net, finish

nets = [Net() for _ in range(3)]


def train(net: Net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(torch.ones(4, 16)).square().mean().backward()
        optimizer.step()


threads = [threading.Thread(target=train, args=(net,)) for net in nets]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
finish(*nets)
