"""The configuration of the DataLoaders that a program uses, for the trace."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from torch.utils.data import dataloader

MAX_LOADERS = 16
"""Most configurations that are kept."""


class Loaders:
    """Sees iterators of DataLoaders being made, from `install` to `remove`."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._original: Callable[..., None] | None = None

    def install(self) -> None:
        """Begins to watch."""
        original = dataloader._BaseDataLoaderIter.__init__
        seen = self

        def init(iterator: Any, loader: Any) -> None:
            seen.add(loader)
            original(iterator, loader)
            seen._iterators.add(iterator)

        self._original = original
        dataloader._BaseDataLoaderIter.__init__ = init  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Stops watching."""
        if self._original is not None:
            dataloader._BaseDataLoaderIter.__init__ = self._original  # type: ignore[method-assign]
            self._original = None

    def workers(self) -> list[int]:
        """The processes of workers that are there now."""
        workers = [w for found in list(self._iterators) for w in getattr(found, "_workers", ())]
        return [worker.pid for worker in workers if worker.pid is not None and worker.is_alive()]

    def add(self, loader: Any) -> None:
        """Keeps the configuration of a loader, once."""
        try:
            described = describe(loader)
        except Exception:  # A subclass may answer as it likes.
            return
        if described not in self.seen and len(self.seen) < MAX_LOADERS:
            self.seen.append(described)


def describe(loader: Any) -> dict[str, Any]:
    """The configuration of a DataLoader, as it is written to the trace."""
    batch = loader.batch_size
    if batch is None:
        batch = getattr(loader.batch_sampler, "batch_size", None)
    return {
        "dataset": type(loader.dataset).__name__,
        "batch_size": batch if isinstance(batch, int) else None,
        "num_workers": int(loader.num_workers),
        "pin_memory": bool(loader.pin_memory),
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": bool(loader.persistent_workers),
    }
