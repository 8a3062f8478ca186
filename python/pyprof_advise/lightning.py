"""A callback for the Trainer of Lightning::

    Trainer(..., callbacks=[pyprof_advise.lightning.AdviseCallback("profile/")])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback

from ._callback import Session

if TYPE_CHECKING:
    import os


class AdviseCallback(Callback):
    """Records some steady steps of a training into `folder`, and writes `report` there at its end."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        report: str | None = "advice.md",
        skip: int | None = None,
        steps: int = 3,
        stack: bool = False,
    ) -> None:
        self._session = Session(folder, report=report, skip=skip, steps=steps, stack=stack)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to count steps."""
        self._session.begin()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Writes the report."""
        self._session.end()
