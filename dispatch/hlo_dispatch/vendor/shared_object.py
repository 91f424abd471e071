"""Shared-library lookup in Python wheels; kernels/common/shared_object.h opens the files."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hlo_dispatch.errors import LibraryError


@dataclass(frozen=True)
class SharedObject:
    """A shared library to look up."""

    file: str
    distribution: str
    """The Python package that contains it."""
    variable: str
    """The environment variable that names another file."""

    @property
    def advice(self) -> str:
        """How to get it."""
        return f"`pip install {self.distribution}` provides it, or name another file in {self.variable}"

    def find(self) -> Path:
        """Where it is.

        Raises:
            LibraryError: it is nowhere, or the variable names no file.
        """
        named = os.environ.get(self.variable)
        if named:
            path = Path(named).expanduser()
            if not path.is_file():
                advice = "unset it or name the library's file"
                raise LibraryError(f"{self.variable} names {named}, which is not a file; {advice}")
            return path.resolve()
        for directory in self._directories():
            if (directory / self.file).is_file():
                return directory / self.file
        raise LibraryError(f"{self.file} was not found in this Python environment; {self.advice}")

    def _directories(self) -> Iterator[Path]:
        """Yield the directories where pip may have installed the file: environment, user site, the wheel's record."""
        yield Path(sys.prefix) / "lib"
        if site.ENABLE_USER_SITE:
            yield Path(site.getuserbase()) / "lib"
        try:
            files = metadata.distribution(self.distribution).files or []
        except metadata.PackageNotFoundError:
            return
        for entry in files:
            if entry.name == self.file:
                yield Path(str(entry.locate())).resolve().parent
