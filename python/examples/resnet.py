"""PyProf's example of a ResNet with nested layers: `annotate` pushes `layer:NAME` around every module."""

import torch
from torch import nn

import pyprof_advise as pyprof

pyprof.init()


class Bottleneck(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels // 4, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels // 4)
        self.conv2 = nn.Conv2d(channels // 4, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(out)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.layer1 = nn.Sequential(Bottleneck(16), Bottleneck(16))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.layer1(self.conv1(x))
        return self.fc(x.mean((2, 3)))


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = pyprof.annotate(ResNet().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(2, 3, 8, 8, device=device), torch.zeros(2, dtype=torch.long, device=device)
with torch.autograd.profiler.emit_nvtx(enabled=device == "cuda"):
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
print(round(float(loss.detach()), 4))
