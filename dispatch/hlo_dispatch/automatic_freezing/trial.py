"""Trial on the caller's calls: the plain and the frozen program take turns, and the faster one stays.

No call runs twice. A call's time goes until its results are ready, and a call of the trial starts when the one before
is ready: programs that run beside each other would share the processor.
"""

from __future__ import annotations

import statistics
import threading
from dataclasses import dataclass, field

PLAIN, FROZEN = 0, 1
_LONGEST_WAIT = 60.0
"""Seconds. A call whose results are not ready by then is counted no longer."""


@dataclass
class Turn:
    """One call of a trial."""

    side: int
    is_ready: threading.Event = field(default_factory=threading.Event)


class CallTrial:
    """The calls of both sides and their times; thread-safe."""

    def __init__(self, samples: int) -> None:
        """
        Args:
            samples: number of times of each side, after a first call that does not count.
        """
        self._samples = samples
        self._seconds: tuple[list[float], list[float]] = ([], [])
        self._begun = 0
        self._running: Turn | None = None
        self._lock = threading.Lock()

    @property
    def is_faster(self) -> bool | None:
        """Whether the frozen program is faster; None: not known yet."""
        plain, frozen = self.seconds
        return None if plain is None or frozen is None else frozen < plain

    @property
    def seconds(self) -> tuple[float | None, float | None]:
        """Median seconds of the plain and of the frozen program; None: not known yet."""
        if min(map(len, self._seconds)) <= self._samples:
            return None, None
        plain, frozen = (statistics.median(seconds[1 : self._samples + 1]) for seconds in self._seconds)
        return plain, frozen

    def begin(self) -> Turn:
        """Begin a call: wait for the one before, and choose its side."""
        running = self._running
        if running is not None:
            running.is_ready.wait(_LONGEST_WAIT)
        with self._lock:
            turn = self._running = Turn(self._begun % 2)
            self._begun += 1
        return turn

    def end(self, turn: Turn, seconds: float | None) -> None:
        """End a call that took so long; None: it failed, or nobody knows."""
        if seconds is not None:
            with self._lock:
                self._seconds[turn.side].append(seconds)
        turn.is_ready.set()
