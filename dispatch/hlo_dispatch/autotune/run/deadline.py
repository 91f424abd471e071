"""Deadlines of measurements, and the exceptions for a lack of time.

A compile or a run cannot be stopped, so it starts only if its estimated time fits.
"""

from __future__ import annotations

import time


class Unclear(Exception):
    """Noise hid which is faster; the cost model decides, and another compile measures again."""


class OutOfTime(Unclear):
    """The remaining time does not suffice; another compile may have more."""


class Deadline:
    """A deadline on this process's clock."""

    def __init__(self, seconds: float = float("inf")) -> None:
        """`seconds`: from now; infinite by default."""
        self._at = time.perf_counter() + seconds

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; negative afterwards."""
        return self._at - time.perf_counter()

    @property
    def is_over(self) -> bool:
        return self.remaining <= 0

    def demand(self, seconds: float) -> None:
        """Require this much remaining time.

        Raises:
            OutOfTime: less remains.
        """
        if seconds > self.remaining:
            raise OutOfTime

    def earlier(self, seconds: float) -> Deadline:
        """A deadline this many seconds before this one."""
        return Deadline(self.remaining - seconds)
