"""Interleaved timing: several ways of doing one thing, measured in turns so that drift hits all of them.

What lies to you, and what is done about it: a busy or throttled machine (turns, medians), the first call
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

    A call must return only when its work is done. Each turn begins with unrecorded calls: one, and more until
    `settle` seconds are over (OpenBLAS's threads keep a processor busy for some 20 ms after their work).
    `progress` is told the finished fraction after each round.
    """
    batches = {name: _batch(call) for name, call in calls.items()}
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
            samples[name] += _turn(calls[name], batches[name], settle)
    if progress is not None:
        progress(1.0)
    return {name: Timing(tuple(values)) for name, values in samples.items()}


def once(call: Callable[[], object]) -> float:
    """Seconds of a call, a mean of several where one is too short for the clock."""
    batch = _batch(call)
    begin = time.perf_counter()
    for _ in range(batch):
        call()
    return (time.perf_counter() - begin) / batch


def _turn(call: Callable[[], object], batch: int, settle: float) -> list[float]:
    settled = time.perf_counter() + settle
    call()
    while time.perf_counter() < settled:
        call()
    values: list[float] = []
    for _ in range(CALLS_PER_TURN):
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        values.append((time.perf_counter() - begin) / batch)
    return values


def _batch(call: Callable[[], object]) -> int:
    """How many calls make one sample long enough for the clock."""
    call()
    begin = time.perf_counter()
    call()
    once = max(time.perf_counter() - begin, 1e-7)
    return max(1, round(SHORTEST_SAMPLE / once))
