# /// treatment
# title = "Memory segments that grow"
# rules = ["host/allocator-churn", "host/allocation"]
# lines = "export PYTORCH_ALLOC_CONF=expandable_segments:True    # PYTORCH_CUDA_ALLOC_CONF before torch 2.11: 2.9 ignores the new name"
# where = "in the environment of the program"
# tolerance = 1e-4
#
# [environment]
# PYTORCH_ALLOC_CONF = "expandable_segments:True"
# PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"
# ///
"""The caching allocator grows its segments instead of freeing and allocating others."""

import sys

from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    program.needs_gpu("it is a setting of the allocator of GPU memory")
    if sys.platform == "win32":
        program.refuse("it has no effect on Windows")
    program.changed("expandable_segments:True")
