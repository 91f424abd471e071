"""Files that exist only to be locked: opened without following a link and without changing a byte.

The folder may be anywhere that a variable names, /tmp among others, where somebody else may have put a link to a
file of ours in the lock's place.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


class LockIsSymlink(OSError):
    """A symbolic link has the name of a lock file; its text is a sentence."""


def open_lock(path: Path) -> int:
    """The descriptor of a lock file, made if there is none; whoever asked for it closes it.

    Raises:
        LinkInTheWay: a symbolic link has the name.
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
