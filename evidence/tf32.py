"""fp32 products on Tensor Cores: TF32 switched on."""

import torch

RULE = "precision/tf32-off"
SETTINGS = {
    "full": {"size": 8192},
    "dry": {"size": 64},
}
SAME = 1e-2


def build(device, settings):
    size = settings["size"]
    return {
        "a": torch.randn(size, size, device=device),
        "b": torch.randn(size, size, device=device),
    }


def step(state, precision):
    torch.set_float32_matmul_precision(precision)
    return state["a"] @ state["b"]


def before(state):
    return step(state, "highest")


def after(state):
    return step(state, "high")
