"""The parts of a model are called, and never the model itself, as agents of reinforcement learning do."""

import torch
from common import STEPS, Net, finish

net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(STEPS):
    x = torch.ones(4, 16)
    for block in net.blocks:
        x = block(x)
    optimizer.zero_grad()
    net.head(x).square().mean().backward()
    optimizer.step()
finish(net)
