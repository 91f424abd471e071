"""Disturbance detection: the samples of a timing that other processes, the hypervisor or shared cores falsify.

A sample is disturbed if its threads waited longer than usual for a processor, and a whole turn if the hypervisor stole
time, or if the virtual processors were hardware threads of one core in part of it: peak vector arithmetic then takes
twice as long, and no counter of the system shows it. So a short probe runs such arithmetic on all threads before and
after.
"""

from __future__ import annotations

import bisect
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.native import native
from hlo_dispatch.process.scheduling_delay import OtherWork, RunDelay, other_work

NEGLIGIBLE = 0.05
"""Waiting, as a fraction of a sample's time, that changes no answer; a gain of this size matters to nobody either."""
MOST_OWN = 0.25
"""Waiting, as a fraction of a sample's time, that is a kernel's own although other work runs all the time."""
ALWAYS_BUSY = 0.25
"""Other work, as a fraction of the processors' time, from which it may run in every sample."""
SHARED = 2**0.5
"""Slowdown of the probe from which two threads share a core, where peak arithmetic takes twice as long."""
RARELY = 20
"""Interval between two samples of a quantity, in multiples of what sampling it costs."""
TICK = 0.01
"""Resolution of other processes' time, in seconds."""
ROUNDS = 20_000
"""Iterations of the probe: 50 µs at two multiply-adds a cycle."""
MOST_PROBED = 32
"""Maximum threads of the probe: more would use up a container's quota of processor time."""
_Read = TypeVar("_Read")
_best_probe: dict[int, float] = {}
"""Threads → the shortest probe in this process."""


class Meter(Protocol):
    """Disturbance meter of one timing."""

    def ready(self) -> None:
        """Start: every candidate has been called once."""
        ...

    def look(self, turn: int, *, now: bool = False) -> None:
        """Sample before a turn; `now`: unconditionally, because the turns before it are about to be judged."""
        ...

    def waited(self) -> float:
        """Seconds that threads have waited for a processor so far."""
        ...

    def tolerated(self, waits: Iterable[float]) -> float:
        """Waiting of an undisturbed sample at most, as a fraction of its time.

        Args:
            waits: of all samples of a candidate, the growth of `waited` as a fraction of the sample's time.
        """
        ...

    def is_undisturbed(self, turn: int) -> bool:
        """Whether a turn is known to be undisturbed, waiting threads aside."""
        ...

    def is_busy(self) -> bool:
        """Whether other work runs all the time: it also evicts caches, which nobody waits for."""
        ...

    def close(self) -> None: ...


@dataclass
class PeriodicSamples(Generic[_Read]):
    """Samples of a quantity, taken periodically between turns."""

    read: Callable[[], _Read]
    clock: Callable[[], float]
    values: list[tuple[int, _Read]] = field(default_factory=list[tuple[int, _Read]])
    """(number of the turn after the sample, sampled value)."""
    _next: float = float("-inf")

    def take(self, turn: int, *, now: bool) -> None:
        """Take a sample if one is due, or with `now` in any case."""
        begin = self.clock()
        if begin < self._next and not now:
            return
        if self.values and self.values[-1][0] == turn:
            return
        self.values.append((turn, self.read()))
        end = self.clock()
        self._next = end + RARELY * (end - begin)

    def around(self, turn: int) -> tuple[_Read, _Read]:
        """The last sample before the turn and the first one after it."""
        after = bisect.bisect_right(self.values, turn, key=lambda sample: sample[0])
        return self.values[after - 1][1], self.values[after][1]

    @property
    def last(self) -> int:
        """The turn after the last sample."""
        return self.values[-1][0]


class DisturbanceMeter:
    """Disturbance meter from run delays, other processes' time and a probe of peak arithmetic."""

    def __init__(
        self,
        delay: RunDelay,
        others: Callable[[], OtherWork | None],
        probe: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        threads: int = 1,
        best_probe: dict[int, float] = _best_probe,
    ) -> None:
        """
        Args:
            best_probe: threads → the shortest probe so far.
            probe: returns the seconds of peak arithmetic on all threads; 0 where they could not run together.
        """
        self._delay, self._threads, self._clock = delay, threads, clock
        self._others, self._probes = PeriodicSamples(others, clock), PeriodicSamples(probe, clock)
        self._best_probe = best_probe
        self._begun = 0.0

    def ready(self) -> None:
        self._delay.forget_idle_threads()
        self._begun = self._clock()

    def look(self, turn: int, *, now: bool = False) -> None:
        self._others.take(turn, now=now)
        self._probes.take(turn, now=now)
        probe = self._probes.values[-1][1]
        if probe > 0:
            self._best_probe[self._threads] = min(probe, self._best_probe.get(self._threads, probe))

    def waited(self) -> float:
        return self._delay.seconds()

    def tolerated(self, waits: Iterable[float]) -> float:
        share = self._share_of_others()
        if share <= 2 * NEGLIGIBLE:  # threads that waited, waited for each other
            return math.inf
        usual = min(waits, default=0.0)
        if share > ALWAYS_BUSY and usual > MOST_OWN:
            return NEGLIGIBLE
        # Threads that a kernel wakes in each call wait each time: that is the kernel's own cost.
        return usual + NEGLIGIBLE

    def is_undisturbed(self, turn: int) -> bool:
        is_judged = turn < min(self._others.last, self._probes.last)
        return is_judged and not self._is_stolen(turn) and not self._shares_cores(turn)

    def is_busy(self) -> bool:
        return self._share_of_others() > ALWAYS_BUSY

    def close(self) -> None:
        self._delay.close()

    def _share_of_others(self) -> float:
        """Other processes' part of the processors' time; some where that is unknown."""
        first, last = self._others.values[0][1], self._others.values[-1][1]
        span = self._threads * (self._clock() - self._begun)
        # Before that the clock's ticks are too coarse.
        if first is None or last is None or NEGLIGIBLE * span <= TICK:
            return ALWAYS_BUSY
        return (last.busy - first.busy) / span

    def _is_stolen(self, turn: int) -> bool:
        before, after = self._others.around(turn)
        return before is not None and after is not None and after.stolen > before.stolen

    def _shares_cores(self, turn: int) -> bool:
        """Whether the processors were hardware threads of one core just before or after the turn, but not always."""
        most = SHARED * self._best_probe.get(self._threads, float("inf"))
        return any(probe > most for probe in self._probes.around(turn))


def this_machine_meter() -> Meter:
    """Create a meter for one timing; the caller closes it."""
    threads = len(os.sched_getaffinity(0))
    return DisturbanceMeter(RunDelay(), other_work, partial(peak_seconds, threads), threads=threads)


def peak_seconds(threads: int) -> float:
    """Seconds of peak arithmetic on this many threads at once; 0 where they cannot run at the same time."""
    if threads > MOST_PROBED:
        return 0.0
    try:
        return native().nanoseconds_at_peak(threads, ROUNDS) * 1e-9
    except LibraryError:
        return 0.0
