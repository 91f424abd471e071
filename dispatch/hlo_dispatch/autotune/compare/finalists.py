"""Who is the fastest of those that beat stock: timed in turns among themselves.

Against stock each of them is known by two uncertain times, stock's and its own, and where stock takes ten times as
long most of the timing goes into stock. Between programs that are a tenth apart that decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hlo_dispatch.autotune.compare.timing import CERTAIN, Time, interleaved
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime

NEAR = 0.2
"""Who seemed to take so much longer than the fastest, in parts of its time, may be the fastest."""
LEAST_MARGIN = 0.005
"""In parts of the first one's time, besides the noise: what is less is a draw, which the first one wins."""


def finalists_of(found: Mapping[str, Time]) -> list[str]:
    """Who may be the fastest, by times against stock; in the order given."""
    best = min(found.values(), key=lambda time: time.seconds)

    def is_finalist(time: Time) -> bool:
        is_near = time.seconds <= (1 + NEAR) * best.seconds
        return is_near or time.gain + CERTAIN * time.error >= best.gain

    return [name for name, time in found.items() if is_finalist(time)]


def fastest(
    candidates: Mapping[str, Callable[[], object]], *, seconds: float, deadline: Deadline
) -> tuple[str, dict[str, float]]:
    """Time them in turns.

    Args:
        contestants: at least one; of several that are equally fast the first wins.
        seconds: of timing.

    Returns:
        the winner, and the seconds of a call of each; of none where there was no time: the first wins then.
    """
    names = list(candidates)
    if len(names) == 1:
        return names[0], {}
    try:
        times = interleaved(list(candidates.values()), seconds=seconds, deadline=deadline)
    except OutOfTime:
        return names[0], {}
    found = dict(zip(names, times, strict=True))
    lead = LEAST_MARGIN * times[0].seconds
    winner = max(names, key=lambda name: found[name].gain - found[name].error - lead if name != names[0] else 0.0)
    return winner, {name: time.seconds for name, time in found.items()}
