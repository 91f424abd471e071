"""Who is faster: contestants timed in turns against the first of them, until the answer is clear.

A machine that is busy, throttled or just warming up hits all of them alike, because they run in turns and
are compared turn by turn; medians keep single disturbances out. A difference counts only by how often it was
seen: its error is estimated from the turns themselves, and where the error is too large for any answer more
turns are taken.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime

SHORTEST_SAMPLE = 150e-6
"""Seconds; shorter calls are timed in batches."""
LONG_CALL = 10e-3
"""Seconds; what lasts so long needs no call before it that warms up caches and threads."""
PATIENT_CALL = 0.1
"""Seconds; what lasts so long is not called twice only to see how long it lasts."""
VERY_LONG_CALL = 1.0
"""Seconds; such calls vary little, and nobody waits for many of them."""
CALLS_PER_TURN = 3
FEWEST_TURNS = 5
MOST_TURNS = 100
PATIENCE = 4.0
"""How many times longer it may take where nothing is clear."""
# A sum of many small disturbances: the median of n of them scatters 1.25 times as much as their mean.
_MEDIAN_SCATTER = 1.25
_MAD_TO_DEVIATION = 1.4826
CERTAIN = 3.0
"""A gain is more than noise if it is so many errors."""
CLEAR = 5.0
"""A difference of so many errors needs no more turns."""
HOPELESS = 1.3
"""Who needs so many times longer than the first one after the fewest turns is timed no further."""
WORTH_KNOWING = 0.05
"""A gain that may be so large, in parts of the first one's time, is worth finding out."""

UNLIKELY = 0.1
"""Who seems to lose so much, in parts of the first one's time, is not expected to gain, however large the noise: a
convolution whose runs took between one and six times as long as stock's was once left to the heuristic."""


@dataclass(frozen=True)
class Time:
    """How long one contestant takes."""

    seconds: float
    """Median of a call."""
    gain: float
    """Median of what it saves against the first contestant in the same turn; seconds."""
    error: float
    """How uncertain the gain is; seconds."""

    def wins(self, least: float) -> bool:
        """Whether the gain is more than noise and `least` (seconds) together."""
        return self.gain > CERTAIN * self.error + least

    def may_win(self, reference: float, least: float) -> bool:
        """Whether noise hides a gain that would be worth having, by the reference's time."""
        noise, worth = CERTAIN * self.error, WORTH_KNOWING * reference + least
        is_hidden = noise > worth / 2 and self.gain + noise > worth and not self.wins(least)
        return is_hidden and self.gain > -UNLIKELY * reference


def interleaved(
    contestants: Sequence[Callable[[], object]],
    *,
    seconds: float,
    least: float = 0.0,
    settle: float = 0.0,
    deadline: Deadline | None = None,
) -> list[Time]:
    """Time every contestant; a call returns when its work is done.

    Args:
        least: gains below so many seconds do not matter.
        settle: seconds of calls that do not count before each turn, until the threads of whoever ran before sleep.
        seconds: stop after so long (where nothing is clear, after PATIENCE times as long), but not before a
            few turns.
        deadline: when it has to be over, whatever is known by then.

    Raises:
        OutOfTime: not even the few turns fit before the deadline.
    """
    deadline = deadline or Deadline()
    runners = _warmed_up(contestants, settle, deadline)
    running = list(range(len(contestants)))
    fewest = _fewest_turns(runners[0].once)
    begin = time.perf_counter()
    for turn in range(MOST_TURNS):
        turns = max(1, fewest - turn)
        if deadline.left < turns * sum(runners[number].turn for number in running):
            if turn < fewest:
                raise OutOfTime
            break
        for number in running[:: 1 if turn % 2 else -1]:
            runners[number].run()
        if turn + 1 < fewest:
            continue
        times = _times(runners)
        spent = time.perf_counter() - begin
        is_open = any(times[number].may_win(times[0].seconds, least) for number in running if number)
        if spent > seconds * (PATIENCE if is_open else 1.0) or _is_settled(times, running):
            break
        running = [n for n in running if n == 0 or times[n].seconds < HOPELESS * times[0].seconds]
        if len(running) == 1:
            break
    return _times(runners)


def _warmed_up(contestants: Sequence[Callable[[], object]], settle: float, deadline: Deadline) -> list[_Runner]:
    """Every contestant after its first calls; the later ones are expected to be as fast as the first."""
    runners: list[_Runner] = []
    for call in contestants:
        if runners:
            deadline.demand(_first_calls(runners[0].once) * runners[0].once + settle)
        runners.append(_Runner(call, settle))
    return runners


def fewest_calls(once: float) -> int:
    """How often at least each contestant is called if a call takes about so many seconds, and at least 10 ms."""
    return _first_calls(once) + _fewest_turns(once)


def _first_calls(once: float) -> int:
    """How many it takes to know how long a call lasts."""
    return 2 if once < PATIENT_CALL else 1


def _fewest_turns(once: float) -> int:
    return FEWEST_TURNS if once < LONG_CALL else FEWEST_TURNS - 2 if once < VERY_LONG_CALL else FEWEST_TURNS - 3


class _Runner:
    """One contestant and its samples, in seconds per call."""

    def __init__(self, call: Callable[[], object], settle: float) -> None:
        self._call, self._settle = call, settle
        self.once = self._warm_up()
        if _first_calls(self.once) > 1:
            begin = time.perf_counter()
            call()
            self.once = max(time.perf_counter() - begin, 1e-7)
        self._batch = max(1, round(SHORTEST_SAMPLE / self.once))
        self.samples: list[float] = []

    @property
    def turn(self) -> float:
        """Seconds of a turn, roughly."""
        calls = self._calls() * self._batch + (1 if self._settle or self.once < LONG_CALL else 0)
        return calls * self.once + self._settle

    def run(self) -> None:
        """A turn: the middle one of a few calls, after one that finds caches and threads as another left them."""
        if self._settle or self.once < LONG_CALL:
            self._warm_up()
        self.samples.append(statistics.median(self._sample() for _ in range(self._calls())))

    def _warm_up(self) -> float:
        """Seconds of the first call."""
        # Sleeping instead would leave the caches and the processor's clock as no program finds them.
        begin = time.perf_counter()
        self._call()
        first = time.perf_counter() - begin
        while time.perf_counter() - begin < self._settle:
            self._call()
        return first

    def _calls(self) -> int:
        return CALLS_PER_TURN if self.once < LONG_CALL else 1

    def _sample(self) -> float:
        begin = time.perf_counter()
        for _ in range(self._batch):
            self._call()
        return (time.perf_counter() - begin) / self._batch


def _is_settled(times: Sequence[Time], running: Sequence[int]) -> bool:
    rivals = [times[number] for number in running if number]
    if any(abs(time.gain) < CLEAR * time.error + 0.03 * times[0].seconds for time in rivals):
        return False
    best = max(rivals, key=lambda time: time.gain, default=None)
    # Between two winners the better one matters as well, if it is much better.
    return best is None or all(t is best or best.gain - t.gain > 3 * (t.error + best.error) for t in rivals)


def _times(runners: Sequence[_Runner]) -> list[Time]:
    return [_time(runners[0].samples, runner.samples) for runner in runners]


def _time(reference: Sequence[float], own: Sequence[float]) -> Time:
    gains = [theirs - mine for theirs, mine in zip(reference, own, strict=False)]
    gain = statistics.median(gains)
    deviation = _MAD_TO_DEVIATION * statistics.median(abs(value - gain) for value in gains)
    return Time(statistics.median(own), gain, _MEDIAN_SCATTER * deviation / len(gains) ** 0.5)
