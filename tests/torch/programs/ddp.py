"""Two processes with DistributedDataParallel and gloo, started by torchrun."""

import gc

import torch
import torch.distributed as dist
from common import STEPS, Net, finish
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = Net()
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(STEPS):
    optimizer.zero_grad()
    model(torch.full((4, 16), (step + dist.get_rank()) / STEPS)).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    finish(net)
# The threads of the group end while Python still runs: one that is left at its end may abort the process.
dist.barrier()
del model
gc.collect()
dist.destroy_process_group()
