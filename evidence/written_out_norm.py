"""A layer norm written out, replaced by the fused one."""

import torch
from torch.nn import functional as F

RULE = "layers/norm-unfused"
SETTINGS = {
    "full": {"rows": 16384, "columns": 4096},
    "dry": {"rows": 16, "columns": 16},
}
SAME = 0.05


def build(device, settings):
    columns = settings["columns"]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return {
        "x": torch.randn(settings["rows"], columns, device=device, dtype=dtype),
        "weight": torch.ones(columns, device=device, dtype=dtype),
        "bias": torch.zeros(columns, device=device, dtype=dtype),
    }


def before(state):
    x = state["x"]
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * state["weight"] + state["bias"]


def after(state):
    x = state["x"]
    return F.layer_norm(x, x.shape[-1:], state["weight"], state["bias"], 1e-5)
