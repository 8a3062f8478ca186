# /// treatment
# title = "Gradients as views of DDP's buckets"
# rules = ["communication/bucket-copies"]
# lines = "model = DistributedDataParallel(model, ..., gradient_as_bucket_view=True)"
# where = "where the model is wrapped"
# tolerance = 1e-4
# ///
"""Gradients live in the buckets that are sent, so that they need not be copied there."""

from pyprof_advise.treatment import Program
from torch.nn.parallel import DistributedDataParallel


def apply(program: Program) -> None:
    program.arguments(
        DistributedDataParallel,
        lambda given: None if given.get("gradient_as_bucket_view") else {"gradient_as_bucket_view": True},
    )
