"""Time estimates of compiling and of creating random inputs, learnt from this process's own times.

The initial estimates are those of two cores of an AMD EPYC (bench/results); later ones scale with observed times.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

_REMEMBERED = 5
_CAUTION = 1.5
"""Safety factor over the median of the latest observations."""


class TimeEstimate:
    """Time estimate of an action, linear in its size; thread-safe."""

    def __init__(self, once: float, each: float) -> None:
        """Initial estimate: constant seconds, and seconds per unit of size."""
        self._once, self._each = once, each
        self._ratios: deque[float] = deque(maxlen=_REMEMBERED)
        self._lock = ForkSafeLock()

    def expected(self, size: float) -> float:
        """Estimated seconds with the safety factor, which the initial estimate includes."""
        with self._lock:
            return (_CAUTION * median(self._ratios) if self._ratios else 1.0) * self._initial_estimate(size)

    def observe(self, size: float, seconds: float) -> None:
        """Record the time of an action of this size."""
        with self._lock:
            self._ratios.append(seconds / self._initial_estimate(size))

    def _initial_estimate(self, size: float) -> float:
        return self._once + self._each * size


compile_time = TimeEstimate(0.03, 0.2e-3)
"""By number of instructions, those inside fusions included."""
input_time = TimeEstimate(1e-3, 1.5e-9)
"""By bytes of random inputs."""
