"""Finalists: the programs that beat stock, timed in an interleaved trial among themselves.

Against stock, each gain has the error of two times, stock's and its own, and where stock is ten times slower most of
the trial's time goes into stock. That does not rank programs that differ by a tenth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hlo_dispatch.autotune.compare.timing import CERTAIN, Time, interleaved
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime

NEAR = 0.2
"""Slowdown against the fastest, as a fraction of its time, up to which a program is a finalist."""
LEAST_MARGIN = 0.005
"""Gain over the first finalist, as a fraction of its time and besides the noise, that another one needs to win."""


def finalists_of(found: Mapping[str, Time]) -> list[str]:
    """The programs that may be the fastest, by their times against stock; in the given order."""
    best = min(found.values(), key=lambda time: time.seconds)

    def is_finalist(time: Time) -> bool:
        is_near = time.seconds <= (1 + NEAR) * best.seconds
        return is_near or time.gain + CERTAIN * time.error >= best.gain

    return [name for name, time in found.items() if is_finalist(time)]


def fastest(
    candidates: Mapping[str, Callable[[], object]], *, seconds: float, regret: float | None = None, deadline: Deadline
) -> tuple[str, dict[str, float]]:
    """Run the interleaved trial of the finalists.

    Args:
        candidates: at least one; of equally fast ones the first wins.
        seconds, regret: as for `interleaved`.

    Returns:
        The winner and each finalist's seconds of a call. Without time for a trial the first wins, and the times are
        empty.
    """
    names = list(candidates)
    if len(names) == 1:
        return names[0], {}
    try:
        times = interleaved(list(candidates.values()), seconds=seconds, regret=regret, deadline=deadline)
    except OutOfTime:
        return names[0], {}
    found = dict(zip(names, times, strict=True))
    lead = LEAST_MARGIN * times[0].seconds
    winner = max(names, key=lambda name: found[name].gain - found[name].error - lead if name != names[0] else 0.0)
    return winner, {name: time.seconds for name, time in found.items()}
