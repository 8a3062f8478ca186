"""Two models with an optimizer each: a step is one of the first."""

import torch
from common import STEPS, Block, Net, finish

generator, critic = Block(), Net()
optimizers = [torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())]
for _ in range(STEPS):
    for optimizer, sign in zip(optimizers, (1.0, -1.0)):
        optimizer.zero_grad()
        (sign * critic(generator(torch.ones(4, 16))).mean()).backward()
        optimizer.step()
finish(generator, critic)
