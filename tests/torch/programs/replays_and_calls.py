"""A program that calls its model and replays CUDA graphs, which hold the rest of a step."""

import torch
from common import STEPS, Net, finish, graph_of_a_product

net = Net().eval()
graph = graph_of_a_product(net.head.weight)
with torch.no_grad():
    for _ in range(STEPS):
        for _ in range(3):
            graph.replay()
        net(torch.ones(4, 16))
finish(net)
