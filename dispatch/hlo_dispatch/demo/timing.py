"""Interleaved timing: alternatives are measured in turns, so that drift affects all of them equally.

Sources of error and their remedies: a busy or throttled machine (turns, medians), the first call
after the other side ran (cold caches, spinning thread pools of the other library: one unrecorded call opens
each turn), calls shorter than the clock (batches), order (it is reversed every other round).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SHORTEST_SAMPLE = 200e-6
"""Seconds; calls shorter than this are timed in batches, since the clock and the loop cost about 0.1 µs."""

CALLS_PER_TURN = 3
FEWEST_ROUNDS = 5
LONG_CALL = 0.25
"""Seconds; a longer call recovers from what ran before it within itself: one a turn, none unrecorded."""


@dataclass(frozen=True)
class Timing:
    """All samples of one way, in seconds per call."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2 / self.median


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 6.0,
    rounds: int = 200,
    settle: float = 0.0,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Timing]:
    """Time every call in turns for about `seconds`, at most `rounds` rounds and never fewer than a handful.

    A call must return only when its work is done. A turn of short calls begins with unrecorded ones: one, and more
    until `settle` seconds are over (OpenBLAS's threads keep a processor busy for some 20 ms after their work).
    `progress` is told the finished fraction after each round.
    """
    paces = {name: _pace(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    for turn in range(rounds):
        spent = time.perf_counter() - start
        if turn >= FEWEST_ROUNDS and spent >= seconds:
            break
        if progress is not None:
            progress(min(1.0, max(turn / rounds, spent / seconds)))
        order = list(calls)[:: 1 if turn % 2 == 0 else -1]
        for name in order:
            samples[name] += _turn(calls[name], paces[name], settle)
    if progress is not None:
        progress(1.0)
    return {name: Timing(tuple(values)) for name, values in samples.items()}


def once(call: Callable[[], object]) -> float:
    """Seconds of a call, a mean of several where one is too short for the clock."""
    return _sample(call, _pace(call).batch)


@dataclass(frozen=True)
class _Pace:
    """Call counts of one side: warm-up calls of a turn, calls for each sample, samples in a turn."""

    unrecorded: int
    batch: int
    samples: int


def _pace(call: Callable[[], object]) -> _Pace:
    call()
    begin = time.perf_counter()
    call()
    seconds = max(time.perf_counter() - begin, 1e-7)
    if seconds > LONG_CALL:
        return _Pace(unrecorded=0, batch=1, samples=1)
    return _Pace(unrecorded=1, batch=max(1, round(SHORTEST_SAMPLE / seconds)), samples=CALLS_PER_TURN)


def _turn(call: Callable[[], object], pace: _Pace, settle: float) -> list[float]:
    settled = time.perf_counter() + settle
    for _ in range(pace.unrecorded):
        call()
    while time.perf_counter() < settled:
        call()
    return [_sample(call, pace.batch) for _ in range(pace.samples)]


def _sample(call: Callable[[], object], batch: int) -> float:
    begin = time.perf_counter()
    for _ in range(batch):
        call()
    return (time.perf_counter() - begin) / batch
