#!/usr/bin/env python3
"""A pair as a program that `pyprof-advise run` and `try` can start: steps of `before`, or of `after`.

    python3 evidence/program.py tf32 [--device cpu] [--dry]

Steps are calls of a model. `try` sets the variable below in its runs with the advice.
"""

import argparse
import os

import torch
from harness import VARIABLE, fresh, load, pairs

STEPS = 10_000
"""More than is ever measured: `run` and `try` end the program."""


class Step(torch.nn.Module):
    def __init__(self, step, state):
        super().__init__()
        self.step, self.state = step, state

    def forward(self):
        # Pairs decide themselves what needs gradients. Outside, their absence makes a call of the model a step.
        with torch.enable_grad():
            return self.step(self.state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pair")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dry", action="store_true", help="small sizes")
    options = parser.parse_args()
    pair = load(pairs([options.pair])[options.pair])
    which = pair.after if os.environ.get(VARIABLE) == "after" else pair.before
    state = fresh(pair, options.device, pair.SETTINGS["dry" if options.dry else "full"])
    model = Step(which, state).eval()
    with torch.no_grad():
        for _ in range(STEPS):
            model()


if __name__ == "__main__":
    main()
