"""Hundreds of small kernels, replayed as one CUDA graph."""

import torch

RULE = "fusion/cuda-graph"
SETTINGS = {
    "full": {"layers": 100, "rows": 64, "width": 256},
    "dry": {"layers": 4, "rows": 4, "width": 8},
}
SAME = 1e-3


def build(device, settings):
    state = {
        "layers": settings["layers"],
        "x": torch.randn(settings["rows"], settings["width"], device=device),
        "scale": torch.rand(settings["width"], device=device) + 0.5,
    }
    if device == "cuda":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                small(state)
        torch.cuda.current_stream().wait_stream(side)
        state["graph"] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(state["graph"]):
            state["out"] = small(state)
    return state


def small(state):
    x = state["x"]
    for _ in range(state["layers"]):
        x = torch.tanh(x * state["scale"] + 0.1)
    return x


def before(state):
    return small(state)


def after(state):
    if "graph" not in state:
        return small(state)  # without a GPU there is nothing to capture
    state["graph"].replay()
    return state["out"]
