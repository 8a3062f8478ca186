"""Reports, made by the program `pyprof-advise` that comes with this package."""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Format = Literal["text", "markdown", "json", "html", "sarif", "github"]
"""Formats of reports."""

VARIABLE = "PYPROF_ADVISE"
"""The environment variable with the path of the program, where it is not found."""


class AdviseError(RuntimeError):
    """There is no report; the message says why and what to do."""


@dataclass(frozen=True)
class Report:
    """The report on some traces. It is made anew in every format that is asked for."""

    paths: tuple[Path, ...]
    options: tuple[str, ...] = ()
    _made: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def to(self, format: Format) -> str:
        """The report in one format."""
        if format not in self._made:
            self._made[format] = _run([*map(str, self.paths), "--format", format, *self.options])
        return self._made[format]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report; the ending says the format, as with `pyprof-advise -o`."""
        _run([*map(str, self.paths), "--output", os.fspath(path), *self.options])
        return Path(path)

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
    """The report on profiles; `options` are those of the command line, such as `("--gpu", "a100")`."""
    return Report(tuple(Path(path) for path in paths), tuple(options))


def program() -> str:
    """The path of the program `pyprof-advise`."""
    named = os.environ.get(VARIABLE)
    beside = Path(sys.executable).with_name("pyprof-advise")
    found = named or shutil.which("pyprof-advise", path=str(beside.parent)) or shutil.which("pyprof-advise")
    if found is None:
        raise AdviseError(
            "the program `pyprof-advise` was not found: install it with `pip install pyprof-advise`, "
            f"or name it in {VARIABLE}"
        )
    return found


def _run(arguments: list[str]) -> str:
    done = subprocess.run(
        [program(), "--quiet", *arguments], capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode == 2:
        raise AdviseError(done.stderr.strip() or "there is no report")
    return done.stdout
