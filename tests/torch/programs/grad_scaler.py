"""A GradScaler that skips the optimizer when gradients overflow, with what is there before the loop frozen."""

import gc

import torch
from common import STEPS, Net, finish, needs

needs("torch.amp", "GradScaler")

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
gc.freeze()
for step in range(STEPS):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.ones(4, 16)).float().square().mean()
    scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
finish(net)
