"""Where a process's report goes: one name, possibly many processes that were given it.

Data loaders, distributed workers and whatever a program starts inherit the variable. None of them may write over
another's report, and a new run of the program should replace the old run's: so a file that is younger than this
process is somebody else's of the same run, and this process puts its number into the name.
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
    """A report's file, as the user named it."""

    path: Path
    """Absolute; may have the placeholder in its name."""
    begun: float
    """When this process began to keep reports; seconds since 1970."""
    process: int
    """Whose it is."""
    is_child: bool = False
    """Whether the process was started by another one of its program, as far as Python knows."""

    @classmethod
    def of(cls, name: str) -> Destination:
        """The file that `name` asks for; it is there only once it is written.

        Raises:
            HloDispatchError: the name has another suffix, or no file can be made there.
        """
        path = Path(name).expanduser().absolute()
        if path.suffix not in (PAGE, DATA):
            raise HloDispatchError(f"the suffix says what is written: name a {DATA} or a {PAGE} file")
        if path.is_dir():
            raise HloDispatchError("this is a directory; name a file")
        try:
            # The only sure way to know: a volume may be read-only for somebody who may do anything.
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as problem:
            raise HloDispatchError(f"no file can be written in {path.parent}: {problem.strerror}") from None
        return cls(path, time.time(), os.getpid(), multiprocessing.parent_process() is not None)

    @property
    def is_page(self) -> bool:
        """Whether a page is asked for, instead of data."""
        return self.path.suffix == PAGE

    def of_child(self) -> Destination:
        """The same in a process that was forked just now."""
        return replace(self, begun=time.time(), process=os.getpid(), is_child=True)

    def write(self, content: bytes) -> Path:
        """Write the report, over no other process's of this run; returns where.

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
    """Two processes that end together do not both find the name free. Leaves nothing behind."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Where folders cannot be locked, processes that end in the same millisecond may meet.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
