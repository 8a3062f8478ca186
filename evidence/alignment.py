"""Dimensions of bf16 products padded to a multiple of 64."""

import torch
from torch.nn import functional as F

RULE = "tensor-cores/gemm-unaligned"
SETTINGS = {
    "full": {"tokens": 8192, "width": 4096, "odd": 10922},
    "dry": {"tokens": 64, "width": 32, "odd": 45},
}
SAME = 0.05


def build(device, settings):
    width, odd = settings["width"], settings["odd"]
    padded = (odd + 63) // 64 * 64
    up = torch.randn(odd, width, device=device, dtype=torch.bfloat16) * 0.02
    down = torch.randn(width, odd, device=device, dtype=torch.bfloat16) * 0.02
    return {
        "x": torch.randn(settings["tokens"], width, device=device, dtype=torch.bfloat16),
        "odd": (up, down),
        # Zeros add nothing: the result stays the same.
        "padded": (F.pad(up, (0, 0, 0, padded - odd)), F.pad(down, (0, padded - odd))),
    }


def mlp(x, weights):
    up, down = weights
    return F.linear(F.gelu(F.linear(x, up)), down)


def before(state):
    return mlp(state["x"], state["odd"])


def after(state):
    return mlp(state["x"], state["padded"])
