"""Attention written out, replaced by scaled_dot_product_attention."""

import torch
from torch.nn import functional as F

RULE = "layers/attention-unfused"
SETTINGS = {
    "full": {"batch": 8, "heads": 16, "sequence": 2048, "head_dim": 64},
    "dry": {"batch": 2, "heads": 2, "sequence": 16, "head_dim": 8},
}
SAME = 0.05


def build(device, settings):
    shape = [settings[key] for key in ("batch", "heads", "sequence", "head_dim")]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    return {"q": q, "k": k, "v": v}


def step(state, attend):
    for tensor in state.values():
        tensor.grad = None
    out = attend(state["q"], state["k"], state["v"])
    out.float().square().mean().backward()
    return out


def written_out(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v


def before(state):
    return step(state, written_out)


def after(state):
    return step(state, F.scaled_dot_product_attention)
