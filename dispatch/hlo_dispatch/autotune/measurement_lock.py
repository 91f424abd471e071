"""Measurement lock: one measurement at a time among the threads and processes that share a store."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Generator
from functools import cache
from pathlib import Path

from hlo_dispatch.autotune.run.deadline import Deadline
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock
from hlo_dispatch.process.lock_file import LockIsSymlink, open_lock

_LOCK_FILE = "measuring.lock"
_POLL_SECONDS = 0.02
_logger = logging.getLogger("hlo_dispatch")
_one_thread = ForkSafeLock()


@contextlib.contextmanager
def exclusive_measurement(store: Path, deadline: Deadline) -> Generator[bool]:
    """Hold the measurement lock inside the block; yields False where the deadline passed first.

    Polls instead of waiting, so that other Python threads run on and a killed process blocks nobody.
    """
    while not _one_thread.acquire(timeout=_POLL_SECONDS):
        if deadline.is_over:
            yield False
            return
    try:
        with _locked_file(store / _LOCK_FILE, deadline) as is_ours:
            yield is_ours
    finally:
        _one_thread.release()


@contextlib.contextmanager
def _locked_file(path: Path, deadline: Deadline) -> Generator[bool]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_lock(path)
    except OSError as problem:
        if isinstance(problem, LockIsSymlink):
            _warn_once(f"measuring goes on without a lock: {problem}")
        # Without a writable directory no measurements are shared either.
        yield True
        return
    try:
        yield _is_locked(descriptor, deadline)
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing it does not, where a child was forked meanwhile
        os.close(descriptor)


def _is_locked(descriptor: int, deadline: Deadline) -> bool:
    """Lock the file; False where another process held the lock until the deadline."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if deadline.is_over:
                return False
            time.sleep(_POLL_SECONDS)
        except OSError:
            # A file system without locks: as without a writable directory.
            return True


@cache
def _warn_once(sentence: str) -> None:
    _logger.warning(sentence)
