"""Batches copied from pinned memory, without waiting."""

import torch

RULE = "copies/pageable"
SETTINGS = {
    "full": {"megabytes": 256, "size": 4096},
    "dry": {"megabytes": 1, "size": 32},
}
SAME = 1e-6


def build(device, settings):
    elements = settings["megabytes"] * 2**20 // 4
    batch = torch.randn(elements)
    pinned = batch.pin_memory() if device == "cuda" else batch
    work = torch.randn(settings["size"], settings["size"], device=device)
    return {"device": device, "batch": batch, "pinned": pinned, "work": work}


def step(state, batch, non_blocking):
    on_gpu = batch.to(state["device"], non_blocking=non_blocking)
    state["work"] @ state["work"]
    return on_gpu.mean()


def before(state):
    return step(state, state["batch"], False)


def after(state):
    return step(state, state["pinned"], True)
