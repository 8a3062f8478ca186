"""Records PyTorch programs, and shows what pyprof-advise says about them.

The quickest way needs none of this: `pyprof-advise run -- python train.py`. In a notebook, or around a part
of a program::

    with pyprof_advise.profile() as recording:
        train_step(batch)
    print(recording.report())

torch is imported when it is needed, never before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from ._handler import advise_handler
    from ._markers import annotate, init, wrap
    from ._profile import Recording, profile
    from ._report import AdviseError, Report, advise

__all__ = [
    "AdviseError",
    "Recording",
    "Report",
    "__version__",
    "advise",
    "advise_handler",
    "annotate",
    "init",
    "profile",
    "wrap",
]

_WHERE = {
    "AdviseError": "_report",
    "Recording": "_profile",
    "Report": "_report",
    "advise": "_report",
    "advise_handler": "_handler",
    "annotate": "_markers",
    "init": "_markers",
    "profile": "_profile",
    "wrap": "_markers",
}


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return __all__
