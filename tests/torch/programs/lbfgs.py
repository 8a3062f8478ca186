"""An optimizer that calls the model itself."""

import torch
from common import STEPS, Net, finish

net = Net()
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)


def closure() -> torch.Tensor:
    optimizer.zero_grad()
    loss = (net(torch.ones(4, 16)) - 1.0).square().mean()
    loss.backward()
    return loss


for _ in range(STEPS):
    optimizer.step(closure)
finish(net)
