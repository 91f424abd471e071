"""Lock files: opened without following symbolic links and without changing their contents.

An environment variable may name any directory, such as /tmp, where another user may have put a link to one of our files
in the lock's place.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


class LockIsSymlink(OSError):
    """A lock file is a symbolic link; its text is a sentence."""


def open_lock(path: Path) -> int:
    """Open a lock file, creating it if necessary; the caller closes the descriptor.

    Raises:
        LockIsSymlink: it is a symbolic link.
        OSError: it cannot be opened.
    """
    # Network file systems lock only what is open for writing.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, flags, 0o666)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        raise LockIsSymlink(f"{path} is a symbolic link, which a lock file is not; remove it") from None
