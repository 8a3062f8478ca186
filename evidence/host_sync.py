"""Losses kept on the GPU and read once a step, not after each product."""

import torch

RULE = "host/scalar-read-back"
SETTINGS = {
    "full": {"size": 1024, "times": 64},
    "dry": {"size": 16, "times": 4},
}
SAME = 1e-3


def build(device, settings):
    size = settings["size"]
    return {
        "x": torch.randn(size, size, device=device) / size**0.5,
        "times": settings["times"],
    }


def before(state):
    x, total = state["x"], 0.0
    for _ in range(state["times"]):
        x = torch.tanh(x @ state["x"])
        total += x.abs().mean().item()
    return torch.tensor(total)


def after(state):
    x, total = state["x"], 0.0
    for _ in range(state["times"]):
        x = torch.tanh(x @ state["x"])
        total = total + x.abs().mean()
    return total
