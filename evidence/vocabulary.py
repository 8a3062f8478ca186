"""A language-model head with its vocabulary padded from 50257 to 50304."""

import torch
from torch.nn import functional as F

RULE = "tensor-cores/gemm-unaligned"
SETTINGS = {
    "full": {"tokens": 8192, "width": 1024, "vocabulary": 50257},
    "dry": {"tokens": 32, "width": 16, "vocabulary": 101},
}
SAME = 0.05


def build(device, settings):
    words = settings["vocabulary"]
    padded = (words + 63) // 64 * 64
    head = torch.randn(words, settings["width"], device=device, dtype=torch.bfloat16) * 0.02
    return {
        "x": torch.randn(settings["tokens"], settings["width"], device=device, dtype=torch.bfloat16),
        "targets": torch.randint(0, words, (settings["tokens"],), device=device),
        "words": words,
        "odd": head.clone().requires_grad_(),
        "padded": F.pad(head, (0, 0, 0, padded - words)).requires_grad_(),
    }


def step(state, head):
    head.grad = None
    logits = F.linear(state["x"], head)
    loss = F.cross_entropy(logits[:, : state["words"]].float(), state["targets"])
    loss.backward()
    return loss


def before(state):
    return step(state, state["odd"])


def after(state):
    return step(state, state["padded"])
