"""Which turns of a timing other work disturbed: threads that waited, time the host took, processors that share a core.

A turn whose threads waited longer than they do anyway is no measurement, nor is one of which one half was taken while
the processors were two threads of one core, and the other half while they were two cores: there arithmetic at the peak
of the vector units takes twice as long, and nothing that the system counts shows it. So a short probe does such
arithmetic on all threads before and after.
"""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.scheduling_delay import OtherWork, RunDelay, other_work
from hlo_dispatch.vendor.native import native

NEGLIGIBLE = 0.05
"""In parts of a sample's time: waiting that changes no answer, as it is no gain worth knowing either."""
SHARED = 2**0.5
"""So many times longer than at best: two threads share a core, where arithmetic at the peak takes twice as long."""
RARELY = 20
"""A reading is taken again when so many times what it costs has passed."""
TICK = 0.01
"""Seconds by which other processes' time is counted."""
ROUNDS = 20_000
"""Of the probe: 50 µs at two multiply-adds a cycle."""
MOST_PROBED = 32
"""Threads: with more of them the probe would use up a container's quota of processor time."""
_Read = TypeVar("_Read")
_best_probe: dict[int, float] = {}
"""Threads → the shortest probe in this process."""


class Meter(Protocol):
    """Knows which of the turns of one timing were disturbed."""

    def ready(self) -> None:
        """Every contestant was called; turns begin now."""
        ...

    def look(self, turn: int, *, now: bool = False) -> None:
        """The turn begins, or, with `now`, all those before it are about to be judged."""
        ...

    def waited(self) -> float:
        """Seconds that threads have waited so far."""
        ...

    def undisturbed(self, waits: Sequence[Sequence[float]]) -> list[bool]:
        """For each turn that all contestants had whether it counts, as far as that is known yet.

        Args:
            waits: of each contestant, for each of its turns, what `waited` grew by, in parts of the turn's time.
        """
        ...

    def close(self) -> None: ...


@dataclass
class PeriodicSamples(Generic[_Read]):
    """A quantity read now and then between turns."""

    read: Callable[[], _Read]
    clock: Callable[[], float]
    values: list[tuple[int, _Read]] = field(default_factory=list[tuple[int, _Read]])
    """(number of the turn before which it was read, what was read)."""
    _next: float = float("-inf")

    def take(self, turn: int, *, now: bool) -> None:
        """Read it, if that is due."""
        begin = self.clock()
        if begin < self._next and not now:
            return
        if self.values and self.values[-1][0] == turn:
            return
        self.values.append((turn, self.read()))
        end = self.clock()
        self._next = end + RARELY * (end - begin)

    def around(self, turn: int) -> tuple[_Read, _Read]:
        """The last one before the turn and the first one after it."""
        after = bisect.bisect_right(self.values, turn, key=lambda reading: reading[0])
        return self.values[after - 1][1], self.values[after][1]

    @property
    def last(self) -> int:
        """The turn before which it was last read."""
        return self.values[-1][0]


class DisturbanceMeter:
    """The meter of this process on this machine."""

    def __init__(
        self,
        delay: RunDelay,
        others: Callable[[], OtherWork | None],
        probe: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        threads: int = 1,
    ) -> None:
        """Nothing is timed yet.

        Args:
            probe: seconds of arithmetic at the units' peak on all threads; 0 where they could not run together.
        """
        self._delay, self._threads, self._clock = delay, threads, clock
        self._others, self._probes = PeriodicSamples(others, clock), PeriodicSamples(probe, clock)
        self._begun = 0.0

    def ready(self) -> None:
        self._delay.forget_idle_threads()
        self._begun = self._clock()

    def look(self, turn: int, *, now: bool = False) -> None:
        self._others.take(turn, now=now)
        self._probes.take(turn, now=now)
        probe = self._probes.values[-1][1]
        if probe > 0:
            _best_probe[self._threads] = min(probe, _best_probe.get(self._threads, probe))

    def waited(self) -> float:
        return self._delay.seconds()

    def undisturbed(self, waits: Sequence[Sequence[float]]) -> list[bool]:
        count = min(len(each) for each in waits)
        if self._is_only_user():
            waits = [[0.0] * count]
        # Some waiting belongs to the kernel: threads that are woken in each call wait each time.
        usual = [min(each, default=0.0) for each in waits]
        judged = min(self._others.last, self._probes.last)
        return [
            turn < judged
            and all(each[turn] - least <= NEGLIGIBLE for each, least in zip(waits, usual, strict=True))
            and not self._is_stolen(turn)
            and not self._shares_cores(turn)
            for turn in range(count)
        ]

    def close(self) -> None:
        self._delay.close()

    def _is_only_user(self) -> bool:
        """Whether nobody else has used the processors: threads that waited, waited for each other then."""
        first, last = self._others.values[0][1], self._others.values[-1][1]
        if first is None or last is None:
            return False
        span = self._threads * (self._clock() - self._begun)
        # Before that the clock's ticks are too coarse.
        return NEGLIGIBLE * span > TICK and last.busy - first.busy <= 2 * NEGLIGIBLE * span

    def _is_stolen(self, turn: int) -> bool:
        before, after = self._others.around(turn)
        return before is not None and after is not None and after.stolen > before.stolen

    def _shares_cores(self, turn: int) -> bool:
        """Whether the processors were threads of one core before the turn or after it, and at other times were not."""
        most = SHARED * _best_probe.get(self._threads, float("inf"))
        return any(probe > most for probe in self._probes.around(turn))


def this_machine_meter() -> Meter:
    """A meter for one timing; it is to be closed."""
    threads = len(os.sched_getaffinity(0))
    return DisturbanceMeter(RunDelay(), other_work, partial(peak_seconds, threads), threads=threads)


def peak_seconds(threads: int) -> float:
    """What arithmetic at the peak takes on so many threads at once; 0 where they cannot run at the same time."""
    if threads > MOST_PROBED:
        return 0.0
    try:
        return native().nanoseconds_at_peak(threads, ROUNDS) * 1e-9
    except LibraryError:
        return 0.0
