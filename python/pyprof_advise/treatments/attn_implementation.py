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

import functools

from pyprof_advise.treatment import Program
from torch import nn


def apply(program: Program) -> None:
    def fuse(model: nn.Module) -> None:
        for part in model.modules():
            before = getattr(getattr(part, "config", None), "_attn_implementation", None)
            switch = getattr(part, "set_attn_implementation", None)
            if before != "eager" or switch is None:
                continue
            try:
                switch("sdpa")
            except ValueError as error:
                program.refuse(f"{type(part).__name__} has no fused attention: {error}")
            if part.config._attn_implementation != "sdpa":
                continue  # transformers only warns of models that have none.
            program.on_undo(functools.partial(switch, before))
            program.changed(f'{type(part).__name__}: attn_implementation="sdpa"')

    program.each_model(fuse)
