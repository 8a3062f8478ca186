# /// treatment
# title = "Fused attention in models of transformers"
# rules = ["layers/attention-unfused", "layers/softmax-unfused"]
# lines = 'model = AutoModel.from_pretrained(name, attn_implementation="sdpa")'
# where = "where the model is loaded"
# kind = "attention"
# tolerance = 1e-2
# ///
"""Models of transformers that were told to compute attention step by step use the fused operator."""

from __future__ import annotations

from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    def fuse(model: nn.Module) -> None:
        config = getattr(model, "config", None)
        before = getattr(config, "_attn_implementation", None)
        switch = getattr(model, "set_attn_implementation", None)
        if before != "eager" or switch is None:
            return
        switch("sdpa")
        program.on_undo(lambda: switch(before))
        program.changed(f'{type(model).__name__}: attn_implementation="sdpa"')

    program.each_model(fuse)
