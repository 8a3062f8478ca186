# /// treatment
# title = "Compile the model"
# rules = ["fusion/many-small-kernels", "fusion/pointwise-chain", "fusion/dropout", "layers/norm-unfused", "layers/gelu-unfused", "layers/silu-unfused", "layers/softmax-unfused", "layers/rope-unfused", "layers/gated-activation"]
# lines = "model = torch.compile(model)"
# where = "after the model is on its device"
# kind = "compile"
# tolerance = 2e-2
# changes_results = "fused operators round less often, and dropout draws other numbers"
# ///
"""torch.compile of the whole model, with its default mode."""

from __future__ import annotations

import torch
from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    def compile_model(model: nn.Module) -> None:
        if type(model).__name__ == "OptimizedModule" or model._compiled_call_impl is not None:
            program.refuse("the program compiles its model already")
        program.around_forward(model, torch.compile)
        program.changed(f"torch.compile({type(model).__name__})")

    program.each_model(compile_model)
