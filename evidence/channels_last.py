"""Convolutions in channels-last memory."""

import torch
from torch import nn

RULE = "memory/layout-transposes"
SETTINGS = {
    "full": {"images": 64, "channels": 256, "size": 56},
    "dry": {"images": 2, "channels": 8, "size": 8},
}
SAME = 0.05


def build(device, settings):
    channels = settings["channels"]
    layers = []
    for _ in range(4):
        layers += [nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers).to(device)
    dtype = torch.float16 if device == "cuda" else torch.float32
    images = torch.randn(settings["images"], channels, settings["size"], settings["size"], device=device)
    return {"model": model.to(dtype), "images": images.to(dtype)}


def step(state, memory_format):
    model = state["model"].to(memory_format=memory_format)
    with torch.no_grad():
        return model(state["images"].to(memory_format=memory_format))


def before(state):
    return step(state, torch.contiguous_format)


def after(state):
    return step(state, torch.channels_last)
