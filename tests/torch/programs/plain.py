"""A training loop with a DataLoader."""

import torch
from common import Net, finish
from torch.utils.data import DataLoader, TensorDataset

net = Net()
optimizer = torch.optim.AdamW(net.parameters())
data = TensorDataset(torch.randn(64, 16), torch.randint(4, (64,)))
for inputs, labels in DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(inputs), labels).backward()
    optimizer.step()
finish(net)
