"""A callback for the Trainer of Hugging Face::

    Trainer(..., callbacks=[pyprof_advise.hf.AdviseCallback("profile/")])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ._callback import Session

if TYPE_CHECKING:
    import os


class AdviseCallback(TrainerCallback):
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

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins to count steps: an optimizer step, whatever `gradient_accumulation_steps` is."""
        self._session.begin()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Writes the report."""
        self._session.end()
