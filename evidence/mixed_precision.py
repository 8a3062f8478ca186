"""fp32 training under autocast in bf16."""

import torch
from torch import nn

RULE = "precision/amp-off"
SETTINGS = {
    "full": {"tokens": 8192, "width": 4096, "layers": 4},
    "dry": {"tokens": 32, "width": 32, "layers": 2},
}
SAME = 0.05


def build(device, settings):
    torch.set_float32_matmul_precision("highest")
    width = settings["width"]
    blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(settings["layers"])]
    return {
        "device": device,
        "model": nn.Sequential(*blocks).to(device),
        "x": torch.randn(settings["tokens"], width, device=device),
    }


def step(state, enabled):
    state["model"].zero_grad(set_to_none=True)
    with torch.autocast(state["device"], dtype=torch.bfloat16, enabled=enabled):
        loss = state["model"](state["x"]).float().square().mean()
    loss.backward()
    return loss


def before(state):
    return step(state, False)


def after(state):
    return step(state, True)
