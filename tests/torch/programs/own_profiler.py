"""A program with a profiler of its own, which is left alone."""

import sys

import torch
from common import STEPS, Net, finish, training_step

net = Net()
step = training_step(net)


for _ in range(4):
    step()
with torch.profiler.profile(record_shapes=True) as profiler:
    for _ in range(STEPS):
        step()
        profiler.step()
profiler.export_chrome_trace(sys.argv[1])
finish(net)
