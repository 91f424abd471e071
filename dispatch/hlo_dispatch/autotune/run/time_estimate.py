"""How fast this process compiles, and makes random numbers: what was seen of it says what to expect.

The first guesses are those of two cores of an AMD EPYC (bench/results); after the first compile the machine has spoken.
"""

from __future__ import annotations

import threading
from collections import deque
from statistics import median

_REMEMBERED = 5
_CAUTION = 1.5
"""So much longer than the last ones the next one may take."""


class TimeEstimate:
    """Seconds for something by its size; safe to use from several threads."""

    def __init__(self, once: float, each: float) -> None:
        """Seconds that any size takes, and seconds for each unit of it, until more is known."""
        self._once, self._each = once, each
        self._ratios: deque[float] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def expected(self, size: float) -> float:
        """Seconds, on the safe side, where the first guesses are already."""
        with self._lock:
            return (_CAUTION * median(self._ratios) if self._ratios else 1.0) * self._initial_estimate(size)

    def observe(self, size: float, seconds: float) -> None:
        """Learn from what something of this size took."""
        with self._lock:
            self._ratios.append(seconds / self._initial_estimate(size))

    def _initial_estimate(self, size: float) -> float:
        return self._once + self._each * size


compile_time = TimeEstimate(0.03, 0.2e-3)
"""By instructions of the module, those of fusions included."""
input_time = TimeEstimate(1e-3, 1.5e-9)
"""By bytes of random inputs."""
