#!/usr/bin/env python3
"""A pair as a program that `pyprof-advise run` and `try` can start: steps of `before`, or of `after`.

    python3 evidence/program.py tf32 [--device cpu] [--dry]
    python3 evidence/program.py tf32 --time 5     both in turn in this process, and the median step of each of 5 rounds

Steps are calls of a model. `try` sets the variable below in its runs with the advice.
"""

import argparse
import json
import os
import statistics
import time

import torch
from harness import SKIP, TIMED, VARIABLE, fresh, load, pairs

STEPS = 10_000
"""More than is ever measured: `try` ends the program."""


class Step(torch.nn.Module):
    def __init__(self, step, state):
        super().__init__()
        self.step, self.state = step, state

    def forward(self):
        # Pairs decide themselves what needs gradients. Outside, their absence makes a call of the model a step.
        with torch.enable_grad():
            return self.step(self.state)


def moment(device):
    """Now, in the stream of the GPU, so that nothing waits."""
    if device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def median_step(model, device, skip):
    """The median of the steps of a round in ns, behind steps that only warm up."""
    for _ in range(skip):
        model()
    moments = [moment(device)]
    for _ in range(TIMED):
        model()
        moments.append(moment(device))
    if device != "cuda":
        return 1e9 * statistics.median(end - start for start, end in zip(moments, moments[1:]))
    torch.cuda.synchronize()
    return 1e6 * statistics.median(start.elapsed_time(end) for start, end in zip(moments, moments[1:]))


def in_turn(pair, device, settings, rounds):
    """Rounds of both versions in turn, each with a state of its own."""
    models = {which: Step(getattr(pair, which), fresh(pair, device, settings)).eval() for which in ("before", "after")}
    found = {which: [] for which in models}
    for number in range(rounds):
        for which, model in models.items():
            found[which].append(median_step(model, device, 2 if number else SKIP))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pair")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dry", action="store_true", help="small sizes")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--time", type=int, metavar="ROUNDS", help="time both versions instead, and print JSON")
    options = parser.parse_args()
    pair = load(pairs([options.pair])[options.pair])
    settings = pair.SETTINGS["dry" if options.dry else "full"]
    if options.time:
        with torch.no_grad():
            print(json.dumps(in_turn(pair, options.device, settings, options.time)))
        return
    which = pair.after if os.environ.get(VARIABLE) == "after" else pair.before
    state = fresh(pair, options.device, settings)
    model = Step(which, state).eval()
    with torch.no_grad():
        for _ in range(options.steps):
            model()


if __name__ == "__main__":
    main()
