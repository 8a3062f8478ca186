"""A float64 constant kept out of fp32 arithmetic."""

import torch

RULE = "precision/fp64-leak"
SETTINGS = {
    "full": {"rows": 4096, "columns": 4096},
    "dry": {"rows": 16, "columns": 16},
}
SAME = 1e-4


def build(device, settings):
    # As numpy makes it: float64, and every operation with it is too.
    table = torch.linspace(0.0, 1.0, settings["columns"], dtype=torch.float64, device=device)
    return {
        "x": torch.randn(settings["rows"], settings["columns"], device=device),
        "table": table,
        "table32": table.float(),
    }


def step(state, table):
    y = torch.sin(state["x"] * table) * table
    return (y @ y.T).float()


def before(state):
    return step(state, state["table"])


def after(state):
    return step(state, state["table32"])
