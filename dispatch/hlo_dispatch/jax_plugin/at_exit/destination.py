"""Destination of a run report: the user's file name, shared by all processes of a program.

Data loaders, distributed workers and other child processes inherit the variable. None of them may overwrite another's
report, and a new run of the program should replace the old run's. So a file that is younger than this process belongs
to another process of the same run, and this process adds its id to the name.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.module_files import write_atomically

PLACEHOLDER = "{pid}"
PAGE, DATA = ".html", ".json"


@dataclass(frozen=True)
class Destination:
    """The report's file, as the user named it."""

    path: Path
    """Absolute; may have the placeholder in its name."""
    begun: float
    """Start of accumulating reports; seconds since 1970."""
    process: int
    """Process id."""
    is_child: bool = False
    """Whether Python's multiprocessing started the process."""

    @classmethod
    def of(cls, name: str) -> Destination:
        """Parse and check a file name; does not create the file.

        Raises:
            HloDispatchError: the name has another suffix, or no file can be made there.
        """
        path = Path(name).expanduser().absolute()
        if path.suffix not in (PAGE, DATA):
            raise HloDispatchError(f"the suffix says what is written: name a {DATA} or a {PAGE} file")
        if path.is_dir():
            raise HloDispatchError("this is a directory; name a file")
        try:
            # The only reliable test: a volume may be read-only despite all permissions.
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as problem:
            raise HloDispatchError(f"no file can be written in {path.parent}: {problem.strerror}") from None
        return cls(path, time.time(), os.getpid(), multiprocessing.parent_process() is not None)

    @property
    def is_page(self) -> bool:
        """Whether the report is an HTML page, and not data."""
        return self.path.suffix == PAGE

    def of_child(self) -> Destination:
        """The destination of a process that was just forked."""
        return replace(self, begun=time.time(), process=os.getpid(), is_child=True)

    def write(self, content: bytes) -> Path:
        """Write the report without overwriting another process's of this run; returns its path.

        Raises:
            OSError, HloDispatchError: it cannot be written.
        """
        with _locked_directory(self.path.parent):
            target = self._target()
            write_atomically(str(target), content)
        return target

    def _target(self) -> Path:
        number = str(self.process)
        if PLACEHOLDER in self.path.name:
            return self.path.with_name(self.path.name.replace(PLACEHOLDER, number))
        if not self.is_child and not _is_written_since(self.path, self.begun):
            return self.path
        return self.path.with_name(f"{self.path.stem}.{number}{self.path.suffix}")


def _is_written_since(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime >= moment
    except OSError:
        return False


@contextlib.contextmanager
def _locked_directory(folder: Path) -> Generator[None]:
    """Lock the directory, so that two processes that end together do not use one name. Creates no file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Without directory locks, processes that end in the same millisecond may collide.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
