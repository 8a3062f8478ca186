# /// treatment
# title = "Larger buckets of gradients"
# rules = ["communication/small-messages"]
# lines = "model = DistributedDataParallel(model, ..., bucket_cap_mb=100)"
# where = "where the model is wrapped"
# tolerance = 1e-4
# ///
"""DDP sends gradients in buckets of 100 MB instead of 25: fewer collectives, which begin later."""

from pyprof_advise.treatment import Program
from torch.nn.parallel import DistributedDataParallel


def apply(program: Program) -> None:
    program.arguments(
        DistributedDataParallel, lambda given: None if given.get("bucket_cap_mb") else {"bucket_cap_mb": 100}
    )
