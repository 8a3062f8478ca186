"""A model sharded by `fully_shard` over two processes, started by torchrun."""

import torch
import torch.distributed as dist
from common import STEPS, Net, needs

needs("torch.distributed.fsdp", "fully_shard")

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
net = Net()
for block in net.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(net, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = net(torch.ones(4, 16)).square().mean()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"result {loss.item()!r}")
dist.destroy_process_group()
