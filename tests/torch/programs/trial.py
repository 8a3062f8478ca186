"""A training loop with things to improve: an unfused optimizer, zeroed gradients, images, a slow dataset."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Images(Dataset):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.004)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 8, 8, generator=generator), index % 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).mean((2, 3))
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.head(x)


if __name__ == "__main__":
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
    for step, (images, labels) in enumerate(DataLoader(Images(), batch_size=4, shuffle=True)):
        optimizer.zero_grad(set_to_none=False)
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        if step == 400:
            break
    print("the whole training")
