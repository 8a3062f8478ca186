# /// treatment
# title = "Search for the fastest convolutions"
# rules = ["layers/conv-fallback-algorithm", "layers/fft-convolution", "layers/naive-convolution"]
# lines = "torch.backends.cudnn.benchmark = True"
# where = "once, at the start of the program"
# tolerance = 1e-3
# ///
"""cuDNN tries its algorithms once per shape. A program whose shapes vary searches again and again."""

import torch
from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    if not torch.backends.cudnn.is_available():
        program.refuse("torch has no cuDNN")
    program.set(torch.backends.cudnn, "benchmark", True)
    program.changed("torch.backends.cudnn.benchmark = True")
