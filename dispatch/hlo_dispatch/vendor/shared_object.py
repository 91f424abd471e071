"""Finding and opening the shared libraries that wheels bring.

The wheels put their files into the environment's ``lib`` directory without telling the loader about it, so
whatever dependency the loader misses is loaded first, from beside the library.
"""

from __future__ import annotations

import ctypes
import os
import re
import site
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.vendor.native import native

_MISSING_DEPENDENCY = re.compile(r"^([^/:\s]+\.so[.\w]*): cannot open shared object file")
# More than any vendor library has (oneDNN's SYCL build misses five); only stops a loader that repeats itself.
_MOST_DEPENDENCIES = 40


@dataclass(frozen=True)
class SharedObject:
    """A file that is to be looked for."""

    file: str
    distribution: str
    """The Python package that brings it."""
    variable: str
    """The environment variable that names another one."""

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
        """Yield where pip may have put the file: this environment, the user's own, wherever the wheel says."""
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


def open_with_dependencies(path: Path) -> ctypes.CDLL:
    """Load a shared library and, from beside it, whatever the loader says it misses.

    Raises:
        LibraryError: it cannot be loaded.
    """
    for _ in range(_MOST_DEPENDENCIES):
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            missing = _MISSING_DEPENDENCY.match(str(error))
            if missing is None or not (path.parent / missing[1]).exists():
                raise LibraryError(f"{path} cannot be loaded: {error}") from error
            open_with_dependencies(path.parent / missing[1])
    raise LibraryError(f"{path} cannot be loaded: its dependencies never end")


@contextmanager
def signals_kept() -> Generator[None]:
    """The process keeps its signal handlers, whatever a library that is loaded meanwhile takes over."""
    kept = native().keep_signals()
    try:
        yield
    finally:
        del kept  # which puts back what was taken over
