"""Disturbance detection: the samples of a timing that other processes, the hypervisor or shared cores falsify.

A sample is disturbed if its threads waited longer than usual for a processor, and a whole turn if the hypervisor stole
time, or if the virtual processors were hardware threads of one core in part of it: peak vector arithmetic then takes
twice as long, and no counter of the system shows it. So a short probe runs such arithmetic on all threads before and
after. Phases of shared cores that are shorter than a turn say nothing of it: each turn has some of both.
"""

from __future__ import annotations

import bisect
import math
import os
import statistics
import time
from collections import deque
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
MOST_NEIGHBOURS = 256
"""Maximum pairs of successive probes that are kept."""
FEWEST_NEIGHBOURS = 12
"""Minimum pairs of successive probes that tell how long phases last."""
BY_CHANCE = 0.5
"""Changes between successive probes, as a fraction of those of independent probes, from which phases are shorter than
the interval of the probes."""
_Read = TypeVar("_Read")


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
class ProbeHistory:
    """The probes of this process on one number of threads: when processors share a core, and for how long."""

    best: float = math.inf
    """Seconds of the shortest probe."""
    neighbours: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=MOST_NEIGHBOURS))
    """Successive probes of one timing: seconds between them, seconds of the first and of the second."""

    def is_shared(self, probe: float) -> bool:
        """Whether processors were hardware threads of one core in a probe, but not always."""
        return probe > SHARED * self.best

    def has_phases_shorter_than(self, interval: float) -> bool:
        """Whether probes this far apart differ about as often as independent ones would."""
        pairs = [(self.is_shared(a), self.is_shared(b)) for apart, a, b in self.neighbours if apart <= interval]
        if len(pairs) < FEWEST_NEIGHBOURS:
            return False
        shared = sum(a + b for a, b in pairs) / (2 * len(pairs))
        return sum(a != b for a, b in pairs) > BY_CHANCE * 2 * shared * (1 - shared) * len(pairs)


_histories: dict[int, ProbeHistory] = {}
"""By number of threads."""


@dataclass
class PeriodicSamples(Generic[_Read]):
    """Samples of a quantity, taken periodically between turns."""

    read: Callable[[], _Read]
    clock: Callable[[], float]
    values: list[tuple[int, _Read]] = field(default_factory=list[tuple[int, _Read]])
    """(number of the turn after the sample, sampled value)."""
    times: list[float] = field(default_factory=list[float])
    """When each was taken, in seconds."""
    _next: float = float("-inf")

    def take(self, turn: int, *, now: bool) -> bool:
        """Take a sample if one is due, or with `now` in any case; returns whether it did."""
        begin = self.clock()
        if begin < self._next and not now:
            return False
        if self.values and self.values[-1][0] == turn:
            return False
        self.values.append((turn, self.read()))
        end = self.clock()
        self.times.append(end)
        self._next = end + RARELY * (end - begin)
        return True

    def around(self, turn: int) -> tuple[_Read, _Read]:
        """The last sample before the turn and the first one after it."""
        after = self._after(turn)
        return self.values[after - 1][1], self.values[after][1]

    def interval(self, turn: int) -> float:
        """Seconds between the two samples around the turn."""
        after = self._after(turn)
        return self.times[after] - self.times[after - 1]

    @property
    def last(self) -> int:
        """The turn after the last sample."""
        return self.values[-1][0]

    def _after(self, turn: int) -> int:
        return bisect.bisect_right(self.values, turn, key=lambda sample: sample[0])


class DisturbanceMeter:
    """Disturbance meter from run delays, other processes' time and a probe of peak arithmetic."""

    def __init__(
        self,
        delay: RunDelay,
        others: Callable[[], OtherWork | None],
        probe: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        threads: int = 1,
        histories: dict[int, ProbeHistory] = _histories,
    ) -> None:
        """
        Args:
            histories: by number of threads, of earlier timings.
            probe: returns the seconds of peak arithmetic on all threads; 0 where they could not run together.
        """
        self._delay, self._threads, self._clock = delay, threads, clock
        self._others, self._probes = PeriodicSamples(others, clock), PeriodicSamples(probe, clock)
        self._history = histories.setdefault(threads, ProbeHistory())
        self._last_probe: tuple[float, float] | None = None
        """When it was taken, and its seconds."""
        self._intervals: list[float] = []
        self._has_short_phases = False
        self._begun = 0.0

    def ready(self) -> None:
        self._delay.forget_idle_threads()
        self._begun = self._clock()

    def look(self, turn: int, *, now: bool = False) -> None:
        self._others.take(turn, now=now)
        if self._probes.take(turn, now=now) and (probe := self._probes.values[-1][1]) > 0:
            self._remember(self._probes.times[-1], probe)

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
        if before is None or after is None:
            return False
        return after.stolen - before.stolen > NEGLIGIBLE * self._threads * self._others.interval(turn)

    def _shares_cores(self, turn: int) -> bool:
        """Whether the processors were hardware threads of one core just before or after the turn, but not always."""
        return not self._has_short_phases and any(map(self._history.is_shared, self._probes.around(turn)))

    def _remember(self, now: float, probe: float) -> None:
        history = self._history
        history.best = min(probe, history.best)
        if self._last_probe is not None:
            begin, last = self._last_probe
            self._intervals.append(now - begin)
            history.neighbours.append((now - begin, last, probe))
            self._has_short_phases = history.has_phases_shorter_than(2 * statistics.median(self._intervals))
        self._last_probe = now, probe


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
