# /// treatment
# title = "Memory segments that grow"
# rules = ["host/allocator-churn", "host/allocation"]
# lines = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
# where = "in the environment of the program"
# tolerance = 1e-4
#
# [environment]
# PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"
# ///
"""The caching allocator grows its segments instead of freeing and allocating others."""

import torch
from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    if not torch.cuda.is_available():
        program.refuse("it is a setting of the allocator of GPU memory")
    program.changed("expandable_segments:True")
