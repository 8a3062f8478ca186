"""Runs a program as if under nsys, and prints the ranges that it pushes."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys

os.environ["NSYS_PROFILING_SESSION_ID"] = "stand-in"

import torch

depth = 0
lines: list[str] = []


def push(text: str) -> None:
    """In place of `torch.cuda.nvtx.range_push`, which needs CUDA."""
    global depth
    lines.append("  " * depth + text)
    depth += 1


def pop() -> None:
    """In place of `torch.cuda.nvtx.range_pop`."""
    global depth
    depth -= 1


torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop = push, pop
with contextlib.redirect_stdout(io.StringIO()):
    runpy.run_path(sys.argv[1])
print("\n".join(lines))
assert depth == 0, f"{depth} ranges are open"
