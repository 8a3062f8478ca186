"""Loaded by every Python that `pyprof-advise run` starts, through PYTHONPATH.

It waits for the program to import torch and does nothing in a process that never does. Then it runs the
`sitecustomize` that it hides.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _AfterImport(importlib.abc.Loader):
    """Loads a module with its own loader, then arms the capture."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module must not see this loader: `importlib.resources` and others ask for features of its own.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            from pyprof_advise import _run

            _run.arm()
        except Exception as error:  # The program must run as if it was started without us.
            _report(f"the recorder failed: {error!r}")


def _report(reason: str) -> None:
    """Says why this process records nothing, as `_record` does."""
    import json

    try:
        folder = json.loads(os.environ["PYPROF_ADVISE_CAPTURE"])["folder"]
        with open(os.path.join(folder, f"process-{os.getpid()}.json"), "w", encoding="utf-8") as file:
            json.dump({"state": "stopped", "reason": reason}, file)
    except (OSError, ValueError, KeyError):
        print(f"pyprof-advise: {reason}", file=sys.stderr)


def _started() -> None:
    """Leaves an empty file beside this one: a Python of the program has found the recorder."""
    try:
        open(os.path.join(_HERE, "started"), "a").close()
    except OSError:
        pass


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds `torch` once, like the finders after it, and replaces its loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterImport(spec.loader)
        return spec


def _run_hidden() -> None:
    """Runs the `sitecustomize` that Python would have found without this one."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if "PYPROF_ADVISE_CAPTURE" in os.environ and "torch" not in sys.modules:
    sys.meta_path.insert(0, _TorchFinder())
    _started()
_run_hidden()
