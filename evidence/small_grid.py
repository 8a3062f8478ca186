"""Products of few rows, batched until their blocks fill the GPU."""

import torch

RULE = "parallelism/small-grid"
SETTINGS = {
    "full": {"rows": 32, "columns": 8192, "inner": 8192, "pieces": 16},
    "dry": {"rows": 4, "columns": 16, "inner": 16, "pieces": 4},
}
SAME = 0.05


def build(device, settings):
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    pieces = settings["pieces"]
    return {
        # Sixteen requests: each alone has too few rows to give every SM a block.
        "rows": [torch.randn(settings["rows"], settings["inner"], device=device, dtype=dtype) for _ in range(pieces)],
        "weight": torch.randn(settings["inner"], settings["columns"] // pieces, device=device, dtype=dtype),
    }


def before(state):
    return torch.cat([rows @ state["weight"] for rows in state["rows"]])


def after(state):
    return torch.cat(state["rows"]) @ state["weight"]
