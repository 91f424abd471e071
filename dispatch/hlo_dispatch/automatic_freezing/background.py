"""Background threads of automatic freezing: compilation at low priority, preprocessing, and waiting for results."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable

Job = Callable[[], None]
_LONGEST_WAIT = 60.0
"""Seconds that the end of the process waits for a job that has begun: XLA cannot be stopped while it compiles."""


class BackgroundThread:
    """A daemon thread that runs jobs one after the other; begins with the first one."""

    def __init__(self, name: str, niceness: int = 0) -> None:
        self._name, self._niceness = name, niceness
        self._lock = threading.RLock()
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_ending = False
        self._lock = threading.RLock()  # another thread may have held the parent's

    def submit(self, job: Job) -> bool:
        """Run a job later, which raises nothing; returns whether it will run.

        Callbacks of dying arrays may submit, whatever they interrupt.
        """
        is_running = self.start()
        if is_running:
            self._jobs.put(job)
        return is_running

    def start(self) -> bool:
        """Start the thread, unless it runs or the process ends; it inherits the priority of the calling one.

        Returns:
            Whether it runs.
        """
        with self._lock:
            if self._thread is None and not self._is_ending:
                # Before it starts: what interrupts that may submit, too.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                if not _is_started(self._thread):
                    self._thread = None
                    return False
                atexit.register(self._end)
            return not self._is_ending

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            if self._niceness:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        jobs = self._jobs
        while True:
            job = jobs.get()
            if job is None or self._is_ending:
                return
            job()
            del job  # it refers to arrays

    def _end(self) -> None:
        """Let the current job end, and no other begin: none may run while the interpreter and JAX shut down."""
        self._is_ending = True
        self._jobs.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LONGEST_WAIT)


class ShortThreads:
    """Daemon threads that run one job each, beside each other: jobs that wait for what may wait for one another."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._running: set[threading.Thread] = set()
        self._is_ending = self._is_registered = False

    def submit(self, job: Job) -> bool:
        """Run a job, which raises nothing, at once; returns whether it runs."""
        if self._is_ending:
            return False
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._end)

        def run() -> None:
            try:
                job()
            finally:
                self._running.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._running.add(thread)
        is_started = _is_started(thread)
        if not is_started:
            self._running.discard(thread)
        return is_started

    def _end(self) -> None:
        """Let the jobs end that have begun: none may run while the interpreter and JAX shut down."""
        self._is_ending = True
        end = time.monotonic() + _LONGEST_WAIT
        for thread in list(self._running):
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))


def _is_started(thread: threading.Thread) -> bool:
    """Start a thread; returns whether the system had one more."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True
