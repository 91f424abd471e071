"""Fork-safe locks: locks that are free in a forked child, where the thread that held the parent's is not."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol


class _Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class ForkSafeLock:
    """A context manager as Python's locks are.

    What a lock of the parent's protected may be half changed in the child; that would be there for good.
    """

    def __init__(self, make: Callable[[], _Lock] = threading.Lock) -> None:
        """
        Args:
            make: makes Python's lock: `threading.Lock` or `threading.RLock`.
        """
        self._make = make
        self._lock = make()
        _locks.add(self)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As of Python's locks."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """As of Python's locks."""
        self._lock.release()

    def renew(self) -> None:
        """Forget who holds it."""
        self._lock = self._make()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew)
