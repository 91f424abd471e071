"""Trial on the caller's calls: the plain and the frozen program take turns, and the faster one stays.

No call runs twice. A call's time goes until its results are ready, and a call of the trial starts when the one before
is ready: programs that run beside each other would share the processor. Where that takes far longer than the calls
before did (its arguments may wait for something else, or for this very call), neither counts.
"""

from __future__ import annotations

import os
import statistics
import threading
from dataclasses import dataclass, field

from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

PLAIN, FROZEN = 0, 1
FIRST_WAIT, SHORTEST_WAIT, LONGEST_WAIT = 1.0, 0.1, 20.0
"""Seconds that a call waits for the one before, as long as no time is known, at least, and at most."""
_TIMES = 2.0
"""Times the longest call of the trial that a call waits for the one before."""
_MOST_TIMES_AS_LONG = 4
"""Times as many samples decide where a median lies within the other side's middle half, as with a busy machine."""
_MOST_OF_PLAIN = 0.98
"""What a frozen program takes of the plain one's time: less gain may be noise, and costs memory."""
_MOST_OVERTAKEN = 24
"""Calls that did not become ready in time; the plain program stays then."""


@dataclass
class Turn:
    """One call of a trial."""

    side: int
    is_counted: bool = True
    is_ready: threading.Event = field(default_factory=threading.Event)
    process: int = field(default_factory=os.getpid)


class CallTrial:
    """The calls of both sides and their times; thread-safe."""

    def __init__(self, samples: int) -> None:
        """
        Args:
            samples: number of times of each side, after a first call that does not count; more where they overlap.
        """
        self._samples = samples
        self._seconds: tuple[list[float], list[float]] = ([], [])
        self._begun = self._overtaken = 0
        self._longest = 0.0
        """Seconds of the longest call, whether it counts or not."""
        self._running: Turn | None = None
        self._lock = ForkSafeLock()

    @property
    def is_faster(self) -> bool | None:
        """Whether the frozen program is faster; None: not known yet."""
        plain, frozen = self.seconds
        if plain is None and self._overtaken >= _MOST_OVERTAKEN:
            return False
        return None if plain is None or frozen is None else frozen < _MOST_OF_PLAIN * plain

    @property
    def seconds(self) -> tuple[float | None, float | None]:
        """Median seconds of the plain and of the frozen program; None: not known yet."""
        count = min(*map(len, self._seconds), self._samples * _MOST_TIMES_AS_LONG + 1) - 1
        if count < self._samples:
            return None, None
        sides = [sorted(seconds[1 : count + 1]) for seconds in self._seconds]
        plain, frozen = map(statistics.median, sides)
        fast, slow = sorted(sides, key=statistics.median)
        are_apart = fast[3 * count // 4] < max(plain, frozen) and min(plain, frozen) < slow[count // 4]
        return (plain, frozen) if are_apart or count == self._samples * _MOST_TIMES_AS_LONG else (None, None)

    def begin(self) -> Turn:
        """Begin a call: wait for the one before, though not for long, and choose its side."""
        running = self._running
        is_alone = running is None or _has_ended(running) or running.is_ready.wait(self.longest_wait)
        with self._lock:
            if running is not None and not is_alone:
                running.is_counted = False
                self._overtaken += 1
            turn = self._running = Turn(self._begun % 2, is_alone)
            self._begun += 1
        return turn

    @property
    def longest_wait(self) -> float:
        """Seconds that a call waits for the one before."""
        if not self._longest:
            return FIRST_WAIT
        return min(max(_TIMES * self._longest, SHORTEST_WAIT), LONGEST_WAIT)

    def end(self, turn: Turn, seconds: float | None) -> None:
        """End a call that took so long; None: it failed, or nobody knows."""
        if seconds is not None:
            with self._lock:
                self._longest = max(self._longest, seconds)
                if turn.is_counted:
                    self._seconds[turn.side].append(seconds)
        turn.is_ready.set()


def _has_ended(turn: Turn) -> bool:
    """Whether nothing can be waited for: it is ready, or a call of the process that this one was forked from."""
    return turn.is_ready.is_set() or turn.process != os.getpid()
