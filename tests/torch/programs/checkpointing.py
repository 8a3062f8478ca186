"""Activations that are computed again in the backward pass."""

import torch
from common import STEPS, Net, finish
from torch.utils.checkpoint import checkpoint

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


class Checkpointed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.net.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.net.head(x)


model = Checkpointed()
for _ in range(STEPS):
    optimizer.zero_grad()
    model(torch.ones(4, 16)).square().mean().backward()
    optimizer.step()
finish(net)
