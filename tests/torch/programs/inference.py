"""A model that is called without gradients: a step is a call."""

import torch
from common import STEPS, Net, finish

net = Net().eval()
with torch.inference_mode():
    for _ in range(STEPS):
        net(torch.ones(4, 16))
finish(net)
