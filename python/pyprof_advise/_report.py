"""Reports, made by the program `pyprof-advise` that comes with this package."""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Format = Literal["text", "markdown", "json", "html", "sarif", "github"]
"""Formats of reports."""

VARIABLE = "PYPROF_ADVISE"
"""The environment variable with the path of the program, where it is not found."""


NO_GPU = "torch found no GPU (`torch.cuda.is_available()` is false)"
"""Why a recording of this machine has nothing to report on."""

_LEFT_OUT = "error: unreadable, left out: "
"""How the program begins a line about a file that is not in the report which it writes of the others."""


class AdviseError(RuntimeError):
    """There is no report; the message says why and what to do."""


def without_gpu() -> bool:
    """Whether what is recorded in this process has no work of a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and not torch.cuda.is_available()


def warn_without_gpu(stacklevel: int) -> None:
    """Says before a recording that there will be no report on it."""
    if without_gpu():
        warnings.warn(f"{NO_GPU}: there will be no report", stacklevel=stacklevel + 1)


@dataclass(frozen=True)
class Report:
    """The report on some traces. It is made anew in every format that is asked for."""

    paths: tuple[Path, ...]
    options: tuple[str, ...] = ()
    _recorded_here: bool = field(default=False, repr=False, compare=False)
    """Whether this process has made the traces."""
    _made: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def to(self, format: Format) -> str:
        """The report in one format."""
        if format not in self._made:
            self._made[format] = self._run("--format", format)
        return self._made[format]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report; the ending says the format, as with `pyprof-advise -o`."""
        self._run("--output", os.fspath(path))
        return Path(path)

    def _run(self, *arguments: str) -> str:
        try:
            return _run([*map(str, self.paths), *arguments, *self.options])
        except AdviseError as error:
            if self._recorded_here and "has no kernels" in str(error) and without_gpu():
                raise AdviseError(
                    f"nothing to analyze: {NO_GPU}: record where a GPU is; in a container, with `--gpus all`"
                ) from None
            raise

    def __str__(self) -> str:
        return self.to("text")

    def _repr_html_(self) -> str:
        """The page, in a frame of its own: its style must not reach the notebook. Else why there is none."""
        try:
            page = html.escape(self.to("html"), quote=True)
        except AdviseError as error:
            return f"<pre>{html.escape(str(error))}</pre>"
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


def advise(*paths: str | os.PathLike[str], options: tuple[str, ...] = ()) -> Report:
    """The report on profiles; `options` are those of the command line, such as `("--gpu", "a100")`. A warning
    names profiles that could not be read, if others could."""
    return Report(tuple(Path(path) for path in paths), tuple(options))


def program() -> str:
    """The path of the program `pyprof-advise`."""
    named = os.environ.get(VARIABLE)
    beside = Path(sys.executable).with_name("pyprof-advise")
    found = named or shutil.which("pyprof-advise", path=str(beside.parent)) or shutil.which("pyprof-advise")
    if found is None:
        raise AdviseError(
            "the program `pyprof-advise` was not found: run `pip install .` or `cargo install --path .` "
            f"in a checkout of its repository, or name it in {VARIABLE}"
        )
    return found


def _run(arguments: list[str]) -> str:
    done = subprocess.run(
        [program(), "--quiet", *arguments], capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode == 2:
        said = done.stderr.strip()
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        if not errors or not all(line.startswith(_LEFT_OUT) for line in errors):
            raise AdviseError(said or "there is no report")
        warnings.warn(said.replace("error: ", ""), stacklevel=4)
    return done.stdout
