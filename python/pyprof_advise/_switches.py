"""Environment variables that change performance: those that may stand in a recording."""

from __future__ import annotations

import os
import re

NAMES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_DEBUG",
    "NCCL_IB_DISABLE",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_JIT",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TOKENIZERS_PARALLELISM",
)
WORD = r"\d{1,6}(\.\d{1,4})?|[Tt]rue|[Ff]alse|on|off|yes|no|native|cudaMallocAsync"
WORD += r"|[Rr]ing|[Tt]ree|CollnetDirect|CollnetChain|NVLS|LL|LL128|[Ss]imple"
WORD += r"|LOC|NVL|PIX|PXB|PHB|SYS|PARALLEL|GROUP|VERSION|WARN|INFO|TRACE"
VALUE = re.compile(rf"({WORD})|[a-z_0-9]{{1,30}}:({WORD})(,[a-z_0-9]{{1,30}}:({WORD})){{0,9}}")
"""Numbers, booleans, known words, and lists of settings with such values."""


def switches() -> dict[str, str]:
    """The variables that are set to a number, a boolean or a known word."""
    found = {name: os.environ.get(name, "") for name in NAMES}
    return {name: text for name, text in found.items() if VALUE.fullmatch(text)}
