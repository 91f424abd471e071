"""Watchdog: runs compiles and measurements on a thread of their own and gives them up after a time limit.

XLA cannot be interrupted. A thread that exceeds its limit is stuck: it runs on until it ends or the process does, and
while it runs nothing else is measured. The waiting thread can be interrupted (Ctrl-C) at any time.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime

GRACE = 0.3
"""Seconds of waiting after the deadline: what was estimated to fit mostly does."""
MAX_SECONDS = 30.0
"""Minimum time limit in seconds without a deadline."""
TIMEOUT_FACTOR = 10.0
"""Multiple of the estimated time from which work counts as timed out, and not as disturbed."""
_MIN_SECONDS = 1.0
"""Seconds below which work never counts as timed out."""
_NAME = "hlo-dispatch-measuring"
_T = TypeVar("_T")
_stuck_threads: list[threading.Thread] = []
_thread_state = threading.local()
_is_exiting = threading.Event()
_MAX_POLL_SECONDS = 10e-3
"""Maximum seconds between two polls."""


class TimedOut(Exception):
    """The work exceeded its estimated time by far and was given up."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it had not ended after {seconds:.1f} s")
        self.seconds = seconds


def wait_for(is_ready: Callable[[], bool]) -> None:
    """On a watched thread, poll in Python until ready; elsewhere return at once.

    A thread that is inside of XLA when the interpreter exits aborts the process.
    """
    pause = 20e-6
    while getattr(_thread_state, "is_watched", False) and not is_ready():
        if _is_exiting.is_set():
            threading.Event().wait()
        time.sleep(pause)
        pause = min(2 * pause, _MAX_POLL_SECONDS)


def has_stuck_threads() -> bool:
    """Whether a stuck thread still runs, so that nothing can be timed."""
    _stuck_threads[:] = [thread for thread in _stuck_threads if thread.is_alive()]
    return bool(_stuck_threads)


def run_with_watchdog(work: Callable[[], _T], deadline: Deadline, expected: float) -> _T:
    """Run `work`, with an estimated time, under the watchdog; returns its result.

    Raises:
        OutOfTime: it was not done at the deadline.
        TimedOut: besides, it exceeded its estimated time by far.
    """
    deadline.demand(expected)
    outcome: list[_T] = []
    problems: list[BaseException] = []

    def run() -> None:
        _thread_state.is_watched = True
        try:
            outcome.append(work())
        except BaseException as problem:
            problems.append(problem)
        done.set()

    done = threading.Event()
    thread = threading.Thread(target=run, name=_NAME, daemon=True)
    _register_exit_handler()
    begin = time.perf_counter()
    try:
        thread.start()
        done.wait(min(deadline.remaining + GRACE, max(MAX_SECONDS, TIMEOUT_FACTOR * expected)))
    finally:
        if not done.is_set():
            _stuck_threads.append(thread)
    if not done.is_set():
        seconds = time.perf_counter() - begin
        raise TimedOut(seconds) if seconds > max(_MIN_SECONDS, TIMEOUT_FACTOR * expected) else OutOfTime
    if problems:
        raise problems[0]
    return outcome[0]


@cache
def _register_exit_handler() -> None:
    atexit.register(_exit_without_teardown)


def _exit_without_teardown() -> None:
    """Exit handler: with a watched thread still running, the process ends without running destructors of libraries.

    C's `on_exit` keeps the exit code, and runs before the destructors of libraries that were loaded earlier. Python
    (before 3.14) ends a thread that returns from a compile during finalization in the middle of C++, which calls
    `std::terminate` and would abort the process; the handler has it pause instead.
    """
    if not any(thread.name == _NAME for thread in threading.enumerate()):
        return
    _is_exiting.set()
    time.sleep(5 * _MAX_POLL_SECONDS)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)
        ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE(libc.pause)
