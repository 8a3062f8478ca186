"""A program that replays a CUDA graph, in whose warm-up and capture alone it calls its model."""

import torch
from common import STEPS, Net, finish, graph_of_a_product

net = Net().eval()
with torch.no_grad():
    for _ in range(3):
        net(torch.ones(4, 16))
    graph = graph_of_a_product(net.head.weight)
    for _ in range(STEPS):
        graph.replay()
finish(net)
