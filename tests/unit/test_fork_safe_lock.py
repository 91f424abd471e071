"""Locks that another thread held when a child was forked."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from hlo_dispatch.autotune.measurement_lock import exclusive_measurement
from hlo_dispatch.autotune.run.deadline import Deadline
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_lock_is_free_in_a_child_and_held_in_the_parent(make: type) -> None:
    lock, is_held, may_end = ForkSafeLock(make), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            may_end.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if lock.acquire(timeout=5) and not _is_free(lock) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not lock.acquire(blocking=False)
    may_end.set()
    thread.join(60)
    with lock:
        assert not _is_free(lock)
    assert _is_free(lock)


def test_a_child_that_lives_on_does_not_hold_the_measurement_lock(tmp_path: Path) -> None:
    with exclusive_measurement(tmp_path, Deadline(60.0)) as is_ours:
        assert is_ours
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
    try:
        with exclusive_measurement(tmp_path, Deadline(1.0)) as is_ours:
            assert is_ours
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def _is_free(lock: ForkSafeLock) -> bool:
    """Whether another thread can take it."""
    found: list[bool] = []

    def take() -> None:
        if lock.acquire(blocking=False):
            lock.release()
            found.append(True)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(60)
    return bool(found)
