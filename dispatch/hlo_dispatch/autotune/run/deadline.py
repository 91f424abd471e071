"""Deadlines of measurements, and the exceptions for a lack of time.

A compile or a run cannot be stopped, so it starts only if its estimated time fits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from hlo_dispatch.selection.measurements import Pairs


class Unclear(Exception):
    """Noise hid which is faster; the cost model decides, and another compile goes on measuring."""

    def __init__(self, samples: Mapping[str, Pairs] | None = None) -> None:
        """`samples`: as in a measurement, the undisturbed samples so far."""
        super().__init__()
        self.samples = samples or {}


class OutOfTime(Unclear):
    """The remaining time does not suffice; another compile may have more."""


class Deadline:
    """A deadline on this process's clock."""

    def __init__(self, seconds: float = float("inf"), reserved: float = 0.0) -> None:
        """
        Args:
            seconds: from now; infinite by default.
            reserved: seconds before the deadline for which nothing may be planned; what takes longer than planned may
                use them.
        """
        self._at, self._reserved = time.perf_counter() + seconds, reserved

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; negative afterwards."""
        return self._at - time.perf_counter()

    @property
    def plannable(self) -> float:
        """Seconds for which something may be planned."""
        return self.remaining - self._reserved

    @property
    def is_over(self) -> bool:
        return self.remaining <= 0

    def demand(self, seconds: float) -> None:
        """Require this much remaining time.

        Raises:
            OutOfTime: less remains.
        """
        if seconds > self.plannable:
            raise OutOfTime

    def earlier(self, seconds: float) -> Deadline:
        """A deadline this many seconds before this one."""
        return Deadline(self.remaining - seconds, self._reserved)
