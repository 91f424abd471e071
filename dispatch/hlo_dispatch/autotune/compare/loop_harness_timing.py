"""Interleaved timing of loop harnesses: seconds of an iteration, without the cost of launching the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from hlo_dispatch.autotune.compare.timing import LONG_CALL, Time, interleaved
from hlo_dispatch.autotune.run.deadline import Deadline
from hlo_dispatch.selection.measurements import Pairs

LEAST_RUN = 3e-3
"""Seconds that a launch should take, as far as the loop's class of trip counts allows."""
_FIRST_ITERATIONS = 8
_LAUNCHES = 9

Harness = Callable[[int], object]
"""Runs this many iterations and returns when they are done."""


def interleaved_iterations(
    harnesses: Sequence[Harness],
    *,
    most: int,
    seconds: float,
    least_gain: float = 0.0,
    deadline: Deadline,
    before: Sequence[Pairs] = (),
) -> list[Time]:
    """Time every harness in an interleaved trial; the Times are those of an iteration.

    The cost of a launch without iterations is subtracted: XLA often launches stock's executables on another thread and
    ours on the caller's, which says nothing about the loop itself.

    Args:
        most: maximum iterations in a launch.
        seconds, least_gain, deadline, before: as for `interleaved`.

    Raises:
        OutOfTime: the time does not suffice.
    """
    # The slowest harness fills that time; the others take less.
    iterations = min(most, *(_iterations(harness, most, deadline) for harness in harnesses))
    launches = [_launch_seconds(harness) for harness in harnesses]
    runs = [partial(harness, iterations) for harness in harnesses]
    first = launches[0]
    earlier = [
        tuple((theirs * iterations + first, own * iterations + launch) for theirs, own in pairs)
        for pairs, launch in zip(before, launches[1:], strict=bool(before))
    ]
    times = interleaved(runs, seconds=seconds, least_gain=least_gain, deadline=deadline, before=earlier)
    return [
        replace(
            found,
            seconds=max(found.seconds - launch, 0.0) / iterations,
            gain=(found.gain - (first - launch)) / iterations,
            error=found.error / iterations,
            gains=tuple((gain - (first - launch)) / iterations for gain in found.gains),
            pairs=tuple(((theirs - first) / iterations, (own - launch) / iterations) for theirs, own in found.pairs),
            least=max(found.least - launch, 0.0) / iterations,
        )
        for found, launch in zip(times, launches, strict=True)
    ]


def _iterations(harness: Harness, most: int, deadline: Deadline) -> int:
    """Number of iterations that fill LEAST_RUN."""
    once = _seconds(harness, 1)
    if once >= LONG_CALL:
        return 1
    few = min(_FIRST_ITERATIONS, most)
    deadline.demand(few * once)
    each = _seconds(harness, few) / few
    return max(1, round(LEAST_RUN / max(each, 1e-9)))


def _launch_seconds(harness: Harness) -> float:
    """Minimum seconds of a launch without iterations."""
    return min(_seconds(harness, 0) for _ in range(_LAUNCHES))


def _seconds(harness: Harness, iterations: int) -> float:
    begin = time.perf_counter()
    harness(iterations)
    return time.perf_counter() - begin
