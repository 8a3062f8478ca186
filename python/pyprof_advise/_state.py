"""Whether this package is recording in detail. `torch.autograd._profiler_enabled()` does not see a profiler of
all threads."""

from __future__ import annotations

is_detailed = False
"""Whether a window is open that is to have ranges of layers and calls."""

has_profiled = False
"""Whether torch.profiler has recorded in this process."""
