"""Interleaved trial: candidates run in turns and are compared turn by turn with the first of them.

Throttling and warm-up affect all candidates of a turn alike. Disturbed samples (`disturbance.py`) do not count, nor
turns in which a candidate has no other. A sequential test (`sequential_test.py`) decides after each turn: a large
difference needs few turns, and an undecided trial continues.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hlo_dispatch.autotune.compare.disturbance import Meter, this_machine_meter
from hlo_dispatch.autotune.compare.sequential_test import is_shown
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime
from hlo_dispatch.selection.measurements import Pairs

SHORTEST_SAMPLE = 150e-6
"""Seconds; shorter calls are timed in batches."""
LONG_CALL = 10e-3
"""Seconds from which a call needs no warm-up call for caches and threads."""
PATIENT_CALL = 0.1
"""Seconds from which one call suffices to estimate the time of a call."""
VERY_LONG_CALL = 1.0
"""Seconds from which fewer turns suffice: such calls vary little."""
SAMPLES_PER_TURN = 3
MOST_SAMPLES = 8
"""Maximum samples in a turn in which other work ran during all of the earlier ones."""
LOST_SLICE = 0.25
"""Waiting, as a fraction of a sample's time, from which other work ran in between. The next sample follows at once,
with a time slice of its own."""
FEWEST_TURNS = 5
MOST_TURNS = 100
PATIENCE = 4.0
"""Factor by which an undecided trial may exceed its time."""
# A sum of many small disturbances: the median of n of them scatters 1.25 times as much as their mean.
_MEDIAN_SCATTER = 1.25
_MAD_TO_DEVIATION = 1.4826
CERTAIN = 3.0
"""Multiple of the error up to which a difference is noise."""
BEYOND_DOUBT = 0.5
"""Gain, as a fraction of the reference's time, that a disturbed trial proves."""
ABANDONED_RATIO = 1.3
"""Ratio to the reference's time from which a losing candidate leaves the trial."""
TOO_LITTLE = 0.03
"""Gain, as a fraction of the reference's time, below which a trial does not continue."""
WORTH_KNOWING = 0.05
"""Possible gain, as a fraction of the reference's time, for which a trial continues."""


@dataclass(frozen=True)
class Time:
    """Result of one candidate in an interleaved trial: time, gain over the reference, and their errors."""

    seconds: float
    """Median seconds of a call."""
    gain: float
    """Median seconds saved against the reference in the same turn."""
    error: float
    """Standard error of the gain, in seconds."""
    gains: tuple[float, ...] = ()
    """Gain in each turn that counts; by default a few values with this median and error."""
    is_disturbed: bool = False
    """Whether too few turns were undisturbed, so that all of them count, or left open which is faster while other work
    ran; the result may not be reproducible."""
    fewest: int = FEWEST_TURNS
    """Number of turns at the first look of the sequential test."""
    pairs: Pairs = ()
    """The samples of undisturbed turns, of earlier trials first."""
    least: float = math.nan
    """Minimum seconds of a call; by default the median. Other work only adds to a time: this is the best estimate where
    all turns were disturbed."""

    def __post_init__(self) -> None:
        if math.isnan(self.least):
            object.__setattr__(self, "least", self.seconds)
        if not self.gains:
            step = self.error * FEWEST_TURNS**0.5 / (_MEDIAN_SCATTER * _MAD_TO_DEVIATION)
            few = tuple(self.gain + (place - FEWEST_TURNS // 2) * step for place in range(FEWEST_TURNS))
            object.__setattr__(self, "gains", few)

    def wins(self, least: float) -> bool:
        """Whether the gain is significantly more than `least` seconds."""
        return self._shows(gain - least for gain in self.gains)

    def is_doubtful(self, reference: float) -> bool:
        """Whether the trial was disturbed, and the gain too small to be proven nevertheless."""
        return self.is_disturbed and not self.wins(BEYOND_DOUBT * reference)

    def may_win(self, reference: float, least: float, worth: float = WORTH_KNOWING) -> bool:
        """Whether more turns could still show a gain of `least` seconds and the fraction `worth` of the reference."""
        return not self.wins(least) and not self.gains_less(worth * reference + least)

    def gains_less(self, most: float) -> bool:
        """Whether the gain is significantly less than `most` seconds."""
        return self._shows(most - gain for gain in self.gains)

    def _shows(self, differences: Iterable[float]) -> bool:
        # A burst of other work may last for many calls: asinh leaves only the order of magnitude of such outliers.
        return is_shown([math.asinh(value / max(self.seconds, 1e-9)) for value in differences], self.fewest)


def interleaved(
    candidates: Sequence[Callable[[], object]],
    *,
    seconds: float,
    least: float = 0.0,
    least_gain: float = 0.0,
    settle: float = 0.0,
    regret: float | None = None,
    deadline: Deadline | None = None,
    meter: Meter | None = None,
    before: Sequence[Pairs] = (),
) -> list[Time]:
    """Run an interleaved trial; a call of a candidate returns when its work is done.

    Args:
        least: seconds below which a gain does not matter.
        least_gain: what a gain has to be besides, as a fraction of the reference's time.
        settle: seconds of uncounted calls before each turn, until the threads of the previous candidate sleep.
        regret: the most that a wrong choice may cost, as a fraction of the reference's time: a candidate is decided
            once it surely gains half of that, or surely less than that. None: by TOO_LITTLE and WORTH_KNOWING.
        seconds: duration (times PATIENCE where the result is undecided or too few turns were undisturbed); a few turns
            run in any case.
        deadline: the latest end.
        meter: detects disturbed turns.
        before: of each candidate but the reference, the undisturbed samples of earlier trials, which count as well.

    Raises:
        OutOfTime: even the minimum number of turns does not fit before the deadline.
    """
    deadline, meter = deadline or Deadline(), meter or this_machine_meter()
    try:
        runners = _warmed_up(candidates, settle, deadline)
        meter.ready()
        question = _Question(least, least_gain, regret)
        times = _in_turns(runners, seconds, question, deadline, meter, ((), *before) if before else [()] * len(runners))
        if not meter.is_busy():
            return times
        # A quiet machine might have shown what is still open.
        reference, *others = times
        return [reference, *(replace(t, is_disturbed=True) if question.may_win(t, reference) else t for t in others)]
    finally:
        meter.close()


@dataclass(frozen=True)
class _Question:
    """What a trial has to find out of each candidate; its fields are as for `interleaved`."""

    least: float
    least_gain: float
    regret: float | None

    def may_win(self, time: Time, reference: Time) -> bool:
        """Whether a trial continues beyond its time."""
        if self.regret is not None:
            return time.may_win(reference.seconds, self.regret / 2 * reference.seconds, self.regret / 2)
        return time.may_win(reference.seconds, self.least_gain * reference.seconds + self.least)

    def is_open(self, time: Time, reference: Time) -> bool:
        """Whether the gain is neither proven to be worthwhile nor proven to be too little."""
        if self.regret is not None:
            return self.may_win(time, reference)
        worth, little = (share * reference.seconds + self.least for share in (WORTH_KNOWING, TOO_LITTLE))
        return not time.wins(worth) and not time.gains_less(little)


def _in_turns(
    runners: Sequence[_Runner],
    seconds: float,
    question: _Question,
    deadline: Deadline,
    meter: Meter,
    before: Sequence[Pairs],
) -> list[Time]:
    running = list(range(len(runners)))
    first_look = _fewest_turns(runners[0].once)
    fewest = max(1, first_look - min((len(pairs) for pairs in before[1:]), default=0))
    begin = time.perf_counter()
    times: list[Time] = []
    for turn in range(MOST_TURNS):
        turns = max(1, fewest - turn)
        if deadline.remaining < turns * sum(runners[number].turn for number in running):
            if turn < fewest:
                raise OutOfTime
            break
        meter.look(turn)
        for number in running[:: 1 if turn % 2 else -1]:
            runners[number].run(meter)
        if turn + 1 < fewest:
            continue
        spent = time.perf_counter() - begin
        meter.look(turn + 1, now=turn + 1 == fewest or spent > seconds)
        times = [_time(runners[0], *one, first_look, meter) for one in zip(runners, before, strict=True)]
        is_open = any(times[n].is_disturbed or question.may_win(times[n], times[0]) for n in running if n)
        if spent > seconds * (PATIENCE if is_open else 1.0) or _is_decided(times, running, question):
            break
        running = [n for n in running if n == 0 or not _is_abandoned(times[n], times[0])]
        if len(running) == 1:
            break
    return times


def _warmed_up(candidates: Sequence[Callable[[], object]], settle: float, deadline: Deadline) -> list[_Runner]:
    """Call every candidate for the first time; later ones are expected to be as fast as the first."""
    runners: list[_Runner] = []
    for call in candidates:
        if runners:
            deadline.demand(_first_calls(runners[0].once) * runners[0].once + settle)
        runners.append(_Runner(call, settle))
    return runners


def fewest_calls(once: float) -> int:
    """Minimum number of calls of each candidate, for a call of this many seconds, at least 10 ms."""
    return _first_calls(once) + _fewest_turns(once)


def _first_calls(once: float) -> int:
    """Number of calls that estimate the time of a call."""
    return 2 if once < PATIENT_CALL else 1


def _fewest_turns(once: float) -> int:
    return FEWEST_TURNS if once < LONG_CALL else FEWEST_TURNS - 2 if once < VERY_LONG_CALL else FEWEST_TURNS - 3


@dataclass
class _Turn:
    """Samples of one candidate in one turn."""

    seconds: list[float] = field(default_factory=list[float])
    """Seconds of a call."""
    waits: list[float] = field(default_factory=list[float])
    """Waiting of threads, as a fraction of the sample's time."""

    @cached_property
    def median(self) -> float:
        """Median of all samples of a complete turn."""
        return statistics.median(self.seconds)

    def undisturbed(self, most_waiting: float) -> float | None:
        """Median of the samples that waited no more than that; None: there is none."""
        counted = [took for took, waited in zip(self.seconds, self.waits, strict=True) if waited <= most_waiting]
        if len(counted) == len(self.seconds):
            return self.median
        return statistics.median(counted) if counted else None


class _Runner:
    """One candidate and its turns."""

    def __init__(self, call: Callable[[], object], settle: float) -> None:
        self._call, self._settle = call, settle
        self.once = self._warm_up()
        if _first_calls(self.once) > 1:
            begin = time.perf_counter()
            call()
            self.once = max(min(time.perf_counter() - begin, self.once), 1e-7)
        self._batch = max(1, round(SHORTEST_SAMPLE / self.once))
        self.turns: list[_Turn] = []

    @property
    def waits(self) -> Iterator[float]:
        """Waiting in each sample, as a fraction of its time."""
        return itertools.chain.from_iterable(turn.waits for turn in self.turns)

    @property
    def least(self) -> float:
        """Seconds of the shortest sample."""
        return min(min(turn.seconds) for turn in self.turns)

    @property
    def turn(self) -> float:
        """Estimated seconds of a turn."""
        calls = self._samples() * self._batch + (1 if self._settle or self.once < LONG_CALL else 0)
        return calls * self.once + self._settle

    def run(self, meter: Meter) -> None:
        """Run a turn: a few samples, after an uncounted call that warms up caches and threads."""
        if self._settle or self.once < LONG_CALL:
            self._warm_up()
        turn, fewest = _Turn(), self._samples()
        self.turns.append(turn)
        usual = min(self.waits, default=0.0)
        while len(turn.seconds) < fewest or (
            fewest > 1 and len(turn.seconds) < MOST_SAMPLES and min(turn.waits) - usual > LOST_SLICE
        ):
            self._sample(turn, meter)

    def _warm_up(self) -> float:
        """Run the uncounted calls; returns the seconds of the first one."""
        # Sleeping instead would leave caches and clock frequency in a state that programs do not have.
        begin = time.perf_counter()
        self._call()
        first = time.perf_counter() - begin
        while time.perf_counter() - begin < self._settle:
            self._call()
        return first

    def _samples(self) -> int:
        return SAMPLES_PER_TURN if self.once < LONG_CALL else 1

    def _sample(self, turn: _Turn, meter: Meter) -> None:
        waited, begin = meter.waited(), time.perf_counter()
        for _ in range(self._batch):
            self._call()
        took = time.perf_counter() - begin
        turn.seconds.append(took / self._batch)
        turn.waits.append(max(meter.waited() - waited, 0.0) / max(took, 1e-9))


def _is_abandoned(time: Time, reference: Time) -> bool:
    return time.seconds > ABANDONED_RATIO * reference.seconds and time.gains_less(0.0) and not time.is_disturbed


def _is_decided(times: Sequence[Time], running: Sequence[int], question: _Question) -> bool:
    others = [times[number] for number in running if number]
    if any(time.is_disturbed or question.is_open(time, times[0]) for time in others):
        return False
    best = max(others, key=lambda time: time.gain, default=None)
    # With two winners the trial also decides between them, unless they are close.
    return best is None or all(t is best or best.gain - t.gain > 3 * (t.error + best.error) for t in others)


def _time(first: _Runner, runner: _Runner, before: Pairs, fewest: int, meter: Meter) -> Time:
    limits = [meter.tolerated(each.waits) for each in (first, runner)]
    both = list(zip(first.turns, runner.turns, strict=False))
    pairs = list(before)
    for turn, (theirs, own) in enumerate(both):
        reference, median = theirs.undisturbed(limits[0]), own.undisturbed(limits[1])
        if reference is not None and median is not None and meter.is_undisturbed(turn):
            pairs.append((reference, median))
    is_disturbed = len(pairs) < fewest
    counted = pairs if not is_disturbed else [(theirs.median, own.median) for theirs, own in both]
    found = paired([reference for reference, _ in counted], [own for _, own in counted], fewest)
    return replace(found, is_disturbed=is_disturbed, least=runner.least, pairs=tuple(pairs))


def paired(reference: Sequence[float], own: Sequence[float], fewest: int) -> Time:
    """Paired statistics of samples: one of the reference and one of the candidate in each turn.

    Args:
        fewest: number of turns at the first look of the sequential test.
    """
    gains = tuple(theirs - mine for theirs, mine in zip(reference, own, strict=True))
    gain = statistics.median(gains)
    deviation = _MAD_TO_DEVIATION * statistics.median(abs(value - gain) for value in gains)
    error = _MEDIAN_SCATTER * deviation / len(gains) ** 0.5
    return Time(statistics.median(own), gain, error, gains, fewest=fewest)
