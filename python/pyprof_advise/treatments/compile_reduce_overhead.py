# /// treatment
# title = "Compile the model, with CUDA graphs"
# rules = ["fusion/cuda-graph", "fusion/many-small-kernels", "host/launch-bound", "host/slow-launches"]
# lines = 'model = torch.compile(model, mode="reduce-overhead")'
# where = "after the model is on its device; shapes must not vary"
# kind = "compile"
# tolerance = 2e-2
# changes_results = "fused operators round less often, and dropout draws other numbers"
# ///
"""torch.compile with CUDA graphs, for models whose kernels are shorter than their launches."""

from __future__ import annotations

from typing import Any, Callable

import torch
from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    program.needs_gpu("CUDA graphs need a GPU")
    if not hasattr(torch.compiler, "cudagraph_mark_step_begin"):
        program.refuse("torch 2.2 or later is needed")

    def compile_model(model: nn.Module) -> None:
        if type(model).__name__ == "OptimizedModule" or model._compiled_call_impl is not None:
            program.refuse("the program compiles its model already")
        program.around_forward(model, graphed)
        program.changed(f'torch.compile({type(model).__name__}, mode="reduce-overhead")')

    program.each_model(compile_model)


def graphed(forward: Callable[..., Any]) -> Callable[..., Any]:
    compiled = torch.compile(forward, mode="reduce-overhead")

    def called(*args: Any, **kwargs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*args, **kwargs)

    return called
