"""Who is faster: contestants timed in turns against the first of them, until the answer is clear.

A machine that is busy, throttled or just warming up hits all of them alike, because they run in turns and
are compared turn by turn; medians keep single disturbances out. A difference counts only by how often it was
seen: its error is estimated from the turns themselves.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHORTEST_SAMPLE = 150e-6
"""Seconds; shorter calls are timed in batches."""
CALLS_PER_TURN = 3
FEWEST_TURNS = 5
MOST_TURNS = 60
# A sum of many small disturbances: the median of n of them scatters 1.25 times as much as their mean.
_MEDIAN_SCATTER = 1.25
_MAD_TO_DEVIATION = 1.4826
CLEAR = 5.0
"""A difference of so many errors is clear."""
HOPELESS = 1.3
"""Who needs so many times longer than the first one after the fewest turns is timed no further."""


@dataclass(frozen=True)
class Time:
    """How long one contestant takes."""

    seconds: float
    """Median of a call."""
    gain: float
    """Median of what it saves against the first contestant in the same turn; seconds."""
    error: float
    """How uncertain the gain is; seconds."""

    def wins(self, reference: float, least: float) -> bool:
        """Whether the gain is more than noise and more than `least` of the reference."""
        return self.gain > 3 * self.error + least * reference


def race(contestants: Sequence[Callable[[], object]], *, seconds: float) -> list[Time]:
    """Time every contestant; a call returns when its work is done.

    Args:
        seconds: stop after so long, with whatever is known by then, but not before a few turns.
    """
    batches = [_batch(call) for call in contestants]
    samples: list[list[float]] = [[] for _ in contestants]
    running = list(range(len(contestants)))
    deadline = time.perf_counter() + seconds
    for turn in range(MOST_TURNS):
        for number in running[:: 1 if turn % 2 else -1]:
            samples[number].append(_turn(contestants[number], batches[number]))
        if turn + 1 < FEWEST_TURNS:
            continue
        times = [_time(samples[0], own) for own in samples]
        if time.perf_counter() > deadline or _is_settled(times, running):
            break
        running = [n for n in running if n == 0 or times[n].seconds < HOPELESS * times[0].seconds]
    return [_time(samples[0], own) for own in samples]


def _is_settled(times: Sequence[Time], running: Sequence[int]) -> bool:
    rivals = [times[number] for number in running if number]
    if any(abs(time.gain) < CLEAR * time.error + 0.03 * times[0].seconds for time in rivals):
        return False
    best = max(rivals, key=lambda time: time.gain, default=None)
    # Between two winners the better one matters as well, if it is much better.
    return best is None or all(t is best or best.gain - t.gain > 3 * (t.error + best.error) for t in rivals)


def _time(reference: Sequence[float], own: Sequence[float]) -> Time:
    gains = [theirs - mine for theirs, mine in zip(reference, own, strict=False)]
    gain = statistics.median(gains)
    deviation = _MAD_TO_DEVIATION * statistics.median(abs(value - gain) for value in gains)
    return Time(statistics.median(own), gain, _MEDIAN_SCATTER * deviation / len(gains) ** 0.5)


def _turn(call: Callable[[], object], batch: int) -> float:
    """Seconds of a call: the middle one of a few, after one that finds the caches and threads as another left them."""
    call()
    values = []
    for _ in range(CALLS_PER_TURN):
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        values.append((time.perf_counter() - begin) / batch)
    return statistics.median(values)


def _batch(call: Callable[[], object]) -> int:
    call()
    begin = time.perf_counter()
    call()
    return max(1, round(SHORTEST_SAMPLE / max(time.perf_counter() - begin, 1e-7)))
