"""Measuring one region: stock XLA's own code for it against each variant of the kernel, in speed and in result.

Both are compiled from the same extracted module, run on the same random inputs, and compared before they are timed: a
variant that computes something else is refused, whatever its speed, and a reproducer is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import sleep
from typing import Any

from hlo_dispatch.autotune.compare.acceptance_rules import missing_gain
from hlo_dispatch.autotune.compare.comparison import LEAST_SECONDS, Comparison, Unmeasurable
from hlo_dispatch.autotune.compare.reproducer import Reproducer
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.extract.loop_harness import in_loop
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime, Unclear
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.selection.candidate import Candidate
from hlo_dispatch.selection.measurements import STOCK, Measurement

__all__ = ["QUICK", "THOROUGH", "Effort", "Task", "Unclear", "Unmeasurable", "measure"]

LEAST_GAIN = 0.02
"""Of stock's time: a kernel that gains less is not worth its call."""
MIN_GAIN_IN_LOOP = 0.04
"""The same in a loop, whose other instructions are only roughly those of the program's."""
TIMINGS_OF_AN_ONLY_REGION = 3
"""More that a kernel has to win where no other is in the program, which nobody tries as a whole."""
MOST_UNCLEAR = 3
"""So often the interleaved timing is repeated where noise hides who wins."""
CLEAR = 1.5
"""So many times as long as a variant takes stock, by the least time of each, where the variant is taken although other
work disturbed every turn: until an undisturbed measurement is made."""
PAUSE = 0.2
"""Seconds between two of them."""


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    seconds: float
    """Timing of one region, at most."""
    most_variants: int
    """Forms besides stock, the likeliest first."""
    is_thorough: bool = False


QUICK = Effort(seconds=0.12, most_variants=1)
THOROUGH = Effort(seconds=1.0, most_variants=6, is_thorough=True)

Build = Callable[[ExtractedModule, str], bytes | None]
"""(extracted module, variant) → it with its region dispatched so, or None where that cannot be done."""


@dataclass(frozen=True)
class Task:
    """One region to measure."""

    extracted: ExtractedModule
    variants: Sequence[tuple[str, Candidate]]
    build: Build
    tolerance: float
    footprint: int
    """Bytes that the program reads between two runs of the region; what was read before is in no cache then."""
    threads: int
    shares_fusion: bool
    """Whether neighbours share its fusions, so that it shows less than it gains there."""
    is_only_region: bool
    """Whether the program has no other region."""
    formula: str
    shape: str
    kernel: str
    split: Splitter | None = None
    """Cuts off what depends on frozen inputs alone."""


def measure(
    task: Task,
    effort: Effort,
    keep: Callable[[str, Reproducer], str],
    *,
    timed: bool = True,
    deadline: Deadline | None = None,
) -> Measurement:
    """Measure one region.

    Args:
        keep: stores a reproducer of a wrong result under a variant's name and returns where.
        timed: False only compares the results; stock is chosen then unless every variant is right.
        deadline: when it has to be over; by default it takes as long as it takes.

    Raises:
        Unmeasurable: the region cannot be run on its own.
        Unclear: noise hides who is faster; OutOfTime: nobody could find out in the time that is left.
        Endless: XLA's own code for the region does not end.
    """
    deadline = deadline or Deadline()
    modules = _modules(task, task.extracted, [variant for variant, _ in task.variants], deadline)
    outcome = Comparison(
        task.extracted,
        tolerance=task.tolerance,
        footprint=task.footprint,
        threads=task.threads,
        variants=len(modules),
        deadline=deadline,
        split=task.split,
    )
    refused: dict[str, str] = {}
    differences: dict[str, float] = {}
    stock_error = 0.0
    for variant, module in modules.items():
        found = outcome.judge(module)
        differences[variant] = found.value
        if found:
            where = keep(variant, outcome.reproducer(module, found))
            refused[variant] = (
                f"{task.formula} on {task.shape} by {task.kernel} ({variant}) differs from stock XLA by "
                f"{found.value:.2g} where {found.tolerance:.2g} is allowed; reproducer: {where}"
            )
        stock_error = max(stock_error, found.stock_error)
    good = [variant for variant in modules if variant not in refused]
    about: dict[str, Any] = {
        "refused": refused, "differences": differences, "thorough": effort.is_thorough, "stock_error": stock_error,
        "formula": task.formula, "shape": task.shape, "kernel": task.kernel,
    }  # fmt: skip
    if not good or not timed:
        return Measurement(STOCK, {}, **about)
    trial = _Trial.of(outcome, task, {variant: modules[variant] for variant in good}, effort, deadline)
    stock, *times = trial.timed(good)
    found = dict(zip(good, times, strict=True))
    if stock_error:
        return _fastest_without_stock(found, stock, about)
    verdict = _verdict(trial, found, stock, about)
    is_open = False
    while verdict.chosen != STOCK and not task.shares_fusion and not verdict.provisional:
        lost = _lost_confirmation(trial, verdict, found[verdict.chosen])
        if lost is None:
            return verdict
        if lost[1].is_disturbed and not refused:
            return replace(verdict, provisional=True)
        is_open |= lost[1].may_win(lost[0].seconds, trial.least(lost[0].seconds))
        # The next one may be as fast and steadier.
        del found[verdict.chosen]
        chosen = _fastest(trial, found, stock.seconds)
        seconds = {**verdict.seconds, STOCK: lost[0].seconds, verdict.chosen: lost[1].seconds}
        gain, noise = (found[chosen].gain, found[chosen].error) if chosen != STOCK else (0.0, verdict.noise)
        why = _why_lost(trial, lost) if chosen == STOCK else ""
        verdict = replace(verdict, chosen=chosen, seconds=seconds, gain=gain, noise=noise, why=why)
    if is_open and not refused:
        raise Unclear
    return verdict


@dataclass(frozen=True)
class _Trial:
    """Interleaved trial of one region: stock against the right variants, alone or in a loop harness."""

    outcome: Comparison
    task: Task
    modules: Mapping[str, bytes]
    """Variant → what is timed."""
    looped: ExtractedModule | None
    effort: Effort
    deadline: Deadline

    @classmethod
    def of(
        cls, outcome: Comparison, task: Task, modules: Mapping[str, bytes], effort: Effort, deadline: Deadline
    ) -> _Trial:
        """That of a region whose variants' modules are known, alone; what its loop makes of them is found out."""
        looped = None
        if task.extracted.loop is not None:
            looped = in_loop(task.extracted)
            modules = _modules(task, looped, list(modules), deadline)
        return cls(outcome, task, modules, looped, effort, deadline)

    def timed(self, variants: Sequence[str], *, keeping: bool = False) -> list[Time]:
        """Stock first; `keeping` as for `Comparison.interleaved`."""
        modules = [self.modules[variant] for variant in variants]
        if self.looped is not None:
            return self.outcome.interleaved_in_loop(self.looped, modules, self.effort.seconds)
        return self.outcome.interleaved(modules, self.effort.seconds, keeping=keeping)

    def least(self, stock: float) -> float:
        """Seconds that a call has to gain, besides the noise."""
        return MIN_GAIN_IN_LOOP * stock if self.looped is not None else LEAST_GAIN * stock + LEAST_SECONDS

    def wins(self, time: Time, stock: float) -> bool:
        return time.wins(self.least(stock))

    @property
    def further_timings(self) -> int:
        """How often more a variant has to win that has won once."""
        if self.looped is not None:
            return 1
        # Where there are other regions the whole program is tried as well.
        return TIMINGS_OF_AN_ONLY_REGION if self.task.is_only_region else 0


def _fastest_without_stock(found: dict[str, Time], stock: Time, about: dict[str, Any]) -> Measurement:
    """The fastest variant that is right: stock is not, whatever its time."""
    seconds = {STOCK: stock.seconds} | {variant: time.seconds for variant, time in found.items()}
    chosen = min(found, key=lambda variant: found[variant].seconds)
    return Measurement(chosen, seconds, max(found[chosen].gain, 0.0), found[chosen].error, **about)


def _lost_confirmation(trial: _Trial, verdict: Measurement, first: Time) -> tuple[Time, Time] | None:
    """Stock's time and the chosen variant's in a further timing that it did not win; None if it won them all.

    Memory that has to be fetched from the system anew, or threads that are slow to wake, last for a whole timing: a
    kernel that gains little has to win twice, or as often as there is time for, if that is at least once. A timing that
    is undecided counts together with those before it, the `first` one included.
    """
    gains = first.gains
    for turn in range(trial.further_timings):
        try:
            stock, own = _confirmation(trial, verdict.chosen, keeping=turn % 2 == 0)
        except OutOfTime:
            if not turn:
                raise
            return None
        gains += own.gains
        # The first look at all of them was the first timing.
        together = replace(own, gains=gains, fewest=len(gains) + 1)
        is_undecided = own.may_win(stock.seconds, trial.least(stock.seconds))
        if not trial.wins(together if is_undecided else own, stock.seconds):
            return stock, own
    return None


def _confirmation(trial: _Trial, variant: str, *, keeping: bool) -> tuple[Time, Time]:
    """The two in turns after a pause, until it is clear or time is up."""
    trial.deadline.demand(PAUSE)
    sleep(PAUSE)
    stock, own = trial.timed([variant], keeping=keeping)
    for _ in range(MOST_UNCLEAR - 1):
        is_decided = own.is_disturbed or not own.may_win(stock.seconds, trial.least(stock.seconds))
        if is_decided or trial.deadline.is_over:
            break
        stock, own = trial.timed([variant], keeping=keeping)
    return stock, own


def _modules(task: Task, extracted: ExtractedModule, variants: Sequence[str], deadline: Deadline) -> dict[str, bytes]:
    modules: dict[str, bytes] = {}
    for variant in variants:
        deadline.demand(0.0)
        module = task.build(extracted, variant)
        if module is not None:
            modules[variant] = module
    if not modules:
        raise Unmeasurable("cut out of its module, the region is matched in another way")
    return modules


def _verdict(trial: _Trial, found: dict[str, Time], reference: Time, about: dict[str, Any]) -> Measurement:
    """The variant that gains most, if it gains clearly."""
    stock = reference.seconds
    chosen = _fastest(trial, found, stock)
    shares_fusion, least = trial.task.shares_fusion, trial.least(stock)
    unclear = any(time.may_win(stock, least) for time in found.values())
    provisional = any(time.is_doubtful(stock) for time in found.values()) and not about["refused"]
    if chosen == STOCK and unclear and not shares_fusion and not about["refused"] and not provisional:
        raise Unclear
    shown = found[chosen] if chosen != STOCK else max(found.values(), key=lambda time: time.gain)
    seconds = {STOCK: stock} | {variant: time.seconds for variant, time in found.items()}
    gain = shown.gain if chosen != STOCK else 0.0
    why = missing_gain(min(found.values(), key=lambda time: time.seconds), stock, least) if chosen == STOCK else ""
    verdict = Measurement(chosen, seconds, gain, shown.error, shares_fusion=shares_fusion, why=why, **about)
    return _provisional(verdict, reference, found) if provisional else verdict


def _provisional(verdict: Measurement, stock: Time, found: Mapping[str, Time]) -> Measurement:
    """What least times say, which other work can only have lengthened: the fastest variant if it is far ahead."""
    fastest = min(found, key=lambda variant: found[variant].least)
    own = found[fastest].least
    is_clear = stock.least >= CLEAR * own
    seconds = {**verdict.seconds, STOCK: stock.least, **{variant: time.least for variant, time in found.items()}}
    chosen, gain = (fastest, stock.least - own) if is_clear else (STOCK, 0.0)
    return replace(verdict, chosen=chosen, seconds=seconds, gain=gain, provisional=True, why="")


def _why_lost(trial: _Trial, lost: tuple[Time, Time]) -> str:
    stock, own = lost
    reason = missing_gain(own, stock.seconds, trial.least(stock.seconds))
    return f"it won one race and not another, in which {reason or 'it was slower'}"


def _fastest(trial: _Trial, found: dict[str, Time], stock: float) -> str:
    chosen = STOCK
    for variant, time in found.items():
        # The earlier variant is the likelier one: a later one has to be better by more than noise.
        best = found[chosen].gain + 2 * time.error + 0.01 * stock if chosen != STOCK else 0.0
        if trial.wins(time, stock) and time.gain > best:
            chosen = variant
    return chosen
