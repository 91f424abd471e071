"""Background threads of automatic freezing: compilation at low priority, preprocessing, and timing of results."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
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

    def submit(self, job: Job) -> None:
        """Run a job later; it raises nothing. Callbacks of dying arrays may submit, whatever they interrupt."""
        self._jobs.put(job)
        self.start()

    def start(self) -> None:
        """Start the thread, unless it runs or the process ends; it inherits the priority of the calling one."""
        with self._lock:
            if self._thread is None and not self._is_ending:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                atexit.register(self._end)
                self._thread.start()

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
