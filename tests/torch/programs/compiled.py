"""A compiled model: recording must neither break its graph nor compile it again."""

import torch
from common import STEPS, Net, finish
from torch._dynamo.utils import counters

net = Net()
compiled = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(STEPS):
    optimizer.zero_grad()
    compiled(torch.ones(4, 16)).square().mean().backward()
    optimizer.step()
print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
finish(net)
