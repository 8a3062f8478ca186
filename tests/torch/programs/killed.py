"""Ends without any exit handler while it is recorded."""

import os
import sys

import torch
from common import Net

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    net(torch.ones(4, 16)).square().mean().backward()
    optimizer.step()
# Hooks are there now: `finish` would count them.
print("result", net.head.bias.tolist())
sys.stdout.flush()
os._exit(5)
