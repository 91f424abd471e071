"""When measuring has to be over, and what is raised where there is no time left.

What cannot be stopped (a compile, a run) is begun only where what is expected of it fits.
"""

from __future__ import annotations

import time


class Unclear(Exception):
    """The machine was too busy to tell who is faster; the heuristic decides, and another time it is asked again."""


class OutOfTime(Unclear):
    """There is not enough time left; another compile may have it."""


class Deadline:
    """A moment of this process's clock."""

    def __init__(self, seconds: float = float("inf")) -> None:
        """It comes after so many seconds; never, by default."""
        self._at = time.perf_counter() + seconds

    @property
    def remaining(self) -> float:
        """Seconds until then; negative afterwards."""
        return self._at - time.perf_counter()

    @property
    def is_over(self) -> bool:
        return self.remaining <= 0

    def demand(self, seconds: float) -> None:
        """Make sure that there is so much time.

        Raises:
            OutOfTime: there is not.
        """
        if seconds > self.remaining:
            raise OutOfTime

    def earlier(self, seconds: float) -> Deadline:
        """The one that comes so many seconds before this one."""
        return Deadline(self.remaining - seconds)
