"""Work that may never end is done on a thread of its own, and not waited for longer than it may take.

XLA cannot be interrupted. What overruns is left behind: it goes on until it ends or the process does, holds nobody up,
and while it goes on nothing else is measured. Whoever waits can be interrupted (Ctrl-C) at any time.
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
"""Seconds after the deadline: what was expected to fit mostly does."""
MAX_SECONDS = 30.0
"""Seconds for anything of which no more than this is expected, where there is no deadline."""
TIMEOUT_FACTOR = 10.0
"""Who takes so many times longer than expected is not merely disturbed by others."""
_MIN_SECONDS = 1.0
"""Seconds; what took less is never called endless."""
_NAME = "hlo-dispatch-measuring"
_T = TypeVar("_T")
_stuck_threads: list[threading.Thread] = []
_thread_state = threading.local()
_is_exiting = threading.Event()
_MAX_POLL_SECONDS = 10e-3
"""Seconds between two questions whether it is done."""


class TimedOut(Exception):
    """It took far longer than anybody could expect, and was not waited for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it had not ended after {seconds:.1f} s")
        self.seconds = seconds


def wait_for(is_ready: Callable[[], bool]) -> None:
    """On a thread that may be left behind, wait in Python; elsewhere return at once.

    A thread that is inside XLA, even for a moment, when the interpreter goes takes the whole process down.
    """
    pause = 20e-6
    while getattr(_thread_state, "is_watched", False) and not is_ready():
        if _is_exiting.is_set():
            threading.Event().wait()
        time.sleep(pause)
        pause = min(2 * pause, _MAX_POLL_SECONDS)


def has_stuck_threads() -> bool:
    """Whether something that was left behind still runs, so that nothing can be timed."""
    _stuck_threads[:] = [thread for thread in _stuck_threads if thread.is_alive()]
    return bool(_stuck_threads)


def run_with_watchdog(work: Callable[[], _T], deadline: Deadline, expected: float) -> _T:
    """The result of `work`, which was expected to take so many seconds.

    Raises:
        OutOfTime: it was not done at the deadline.
        Endless: besides, it took much longer than expected.
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
    """Where something is still running, left behind or not, the process ends without taking down what it runs in.

    C's `on_exit` hands the exit code on, and runs before the destructors of libraries that were loaded earlier. A
    thread that comes back from a compile while Python goes down is ended by Python (before 3.14) in the middle of
    C++, which calls `std::terminate` and so would abort the process: it waits there for the end instead.
    """
    if not any(thread.name == _NAME for thread in threading.enumerate()):
        return
    _is_exiting.set()
    time.sleep(5 * _MAX_POLL_SECONDS)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)
        ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE(libc.pause)
