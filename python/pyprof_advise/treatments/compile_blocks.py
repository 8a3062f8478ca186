# /// treatment
# title = "Compile the repeated blocks"
# rules = ["fusion/many-small-kernels", "fusion/pointwise-chain", "fusion/graph-breaks", "fusion/recompiles"]
# lines = """
# for block in model.blocks:
#     block.compile()
# """
# where = "after the model is on its device; `blocks` is the list of equal layers"
# kind = "compile"
# tolerance = 2e-2
# changes_results = "fused operators round less often, and dropout draws other numbers"
# ///
"""torch.compile of each of several layers of one class, which compiles once for all of them."""

from __future__ import annotations

import torch
from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    def compile_blocks(model: nn.Module) -> None:
        if type(model).__name__ == "OptimizedModule" or model._compiled_call_impl is not None:
            program.refuse("the program compiles its model already")
        for name, part in model.named_modules():
            blocks = list(part.children()) if isinstance(part, (nn.ModuleList, nn.Sequential)) else []
            if len(blocks) > 1 and len({type(block) for block in blocks}) == 1:
                for block in blocks:
                    program.around_forward(block, torch.compile)
                program.changed(f"{len(blocks)} blocks of class {type(blocks[0]).__name__} compiled")
                program.lines(f"for block in model{'.' * bool(name)}{name}:\n    block.compile()")

    program.each_model(compile_blocks)
