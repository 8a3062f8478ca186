"""Whether Dynamo is tracing the caller: then hooks must leave no trace in the compiled code."""

from __future__ import annotations

import sys

try:
    from torch.compiler import is_compiling
except ImportError:  # Before torch 2.1.

    def is_compiling() -> bool:
        """Whether the caller is being compiled."""
        dynamo = sys.modules.get("torch._dynamo")
        return dynamo is not None and dynamo.is_compiling()


__all__ = ["is_compiling"]
