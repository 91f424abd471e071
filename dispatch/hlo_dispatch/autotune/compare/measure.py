"""Measurement of one region: stock XLA's code against each variant of the kernel, validated, then timed.

Both are compiled from the same extracted module and run on the same random inputs. Validation comes before timing: a
variant with a wrong result is refused, whatever its speed, and a reproducer is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import sleep
from typing import Any

from hlo_dispatch.autotune.compare.acceptance_rules import missing_gain
from hlo_dispatch.autotune.compare.comparison import LEAST_SECONDS, Comparison, Unmeasurable
from hlo_dispatch.autotune.compare.reproducer import Reproducer
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.extract.loop_harness import in_loop
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime, Unclear
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.selection.candidate import Candidate
from hlo_dispatch.selection.measurements import STOCK, Measurement, Pairs

__all__ = ["QUICK", "THOROUGH", "Effort", "Task", "Unclear", "Unmeasurable", "measure"]

LEAST_GAIN = 0.02
"""Minimum gain as a fraction of stock's time."""
MIN_GAIN_IN_LOOP = 0.04
"""The same in a loop harness, whose other instructions only resemble those of the program's loop."""
TIMINGS_OF_AN_ONLY_REGION = 3
"""Confirmations where the program has no other region: such a program has no whole-program trial."""
MOST_UNCLEAR = 3
"""Maximum interleaved trials of a pair where noise hides the winner."""
CLEAR = 1.25
"""Ratio of stock's minimum time to a variant's from which a disturbed trial chooses the variant provisionally."""
PAUSE = 0.2
"""Seconds between two trials."""


@dataclass(frozen=True)
class Effort:
    """Measurement effort: time and number of variants for one region."""

    seconds: float
    """Maximum seconds of timing a region."""
    most_variants: int
    """Maximum number of variants besides stock, in the cost model's order."""
    is_thorough: bool = False


QUICK = Effort(seconds=0.12, most_variants=1)
THOROUGH = Effort(seconds=1.0, most_variants=6, is_thorough=True)

Build = Callable[[ExtractedModule, str], Module | None]
"""(extracted module, variant) → the dispatched module; None where the variant does not match there."""


@dataclass(frozen=True)
class Task:
    """One region to measure: its extracted module, variants and context."""

    extracted: ExtractedModule
    variants: Sequence[tuple[str, Candidate]]
    build: Build
    tolerance: float
    footprint: int
    """Bytes that the program reads between two runs of the region, which evict earlier data from the caches."""
    threads: int
    shares_fusion: bool
    """Whether the region shares fusions with its neighbours; measured alone it then shows less than its gain."""
    is_only_region: bool
    """Whether the program has no other region."""
    formula: str
    shape: str
    kernel: str
    before: Mapping[str, Pairs] = field(default_factory=dict[str, Pairs])
    """Variant → the undisturbed samples of earlier processes, whose measurement stayed provisional."""
    split: Splitter | None = None
    """Partitions a module with frozen inputs into prologue and steady-state program."""


def measure(
    task: Task,
    effort: Effort,
    save_reproducer: Callable[[str, Reproducer], str],
    *,
    timed: bool = True,
    deadline: Deadline | None = None,
) -> Measurement:
    """Measure one region.

    Args:
        save_reproducer: stores a reproducer of a wrong result under a variant's name; returns its place.
        timed: False only validates results.
        deadline: the latest end; none by default.

    Raises:
        Unmeasurable: the region cannot be run alone.
        Unclear: noise hides which is faster. OutOfTime: the remaining time does not suffice.
        TimedOut: XLA's own code for the region does not end.
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
            where = save_reproducer(variant, outcome.reproducer(module, found))
            refused[variant] = (
                f"{task.formula} on {task.shape} by {task.kernel} ({variant}) differs from stock XLA by "
                f"{found.value:.2g} where {found.tolerance:.2g} is allowed; reproducer: {where}"
            )
        stock_error = max(stock_error, found.stock_error)
    good = [variant for variant in modules if variant not in refused]
    description: dict[str, Any] = {
        "refused": refused, "differences": differences, "thorough": effort.is_thorough, "stock_error": stock_error,
        "formula": task.formula, "shape": task.shape, "kernel": task.kernel,
    }  # fmt: skip
    if not good or not timed:
        return Measurement(STOCK, {}, **description)
    trial = _Trial.of(outcome, task, {variant: modules[variant] for variant in good}, effort, deadline)
    stock, *times = trial.timed(good, [task.before.get(variant, ()) for variant in good])
    found = dict(zip(good, times, strict=True))
    samples = _samples(found)
    if stock_error:
        return _fastest_without_stock(found, stock, description)
    verdict = _verdict(trial, found, stock, description)
    is_open = False
    while verdict.chosen != STOCK and not task.shares_fusion and not verdict.provisional:
        try:
            lost_confirmation = _lost_confirmation(trial, verdict, found[verdict.chosen])
        except OutOfTime:
            # Another compile confirms it; these samples count there.
            return replace(verdict, provisional=True, samples=samples)
        if lost_confirmation is None:
            return verdict
        if lost_confirmation[1].is_disturbed and not refused:
            return replace(verdict, provisional=True, samples=samples)
        is_open |= lost_confirmation[1].may_win(lost_confirmation[0].seconds, trial.least(lost_confirmation[0].seconds))
        # The next variant may be as fast and have less noise.
        del found[verdict.chosen]
        chosen = _fastest(trial, found, stock.seconds)
        seconds = {**verdict.seconds, STOCK: lost_confirmation[0].seconds, verdict.chosen: lost_confirmation[1].seconds}
        gain, noise = (found[chosen].gain, found[chosen].error) if chosen != STOCK else (0.0, verdict.noise)
        why = _lost_confirmation_reason(trial, lost_confirmation) if chosen == STOCK else ""
        verdict = replace(verdict, chosen=chosen, seconds=seconds, gain=gain, noise=noise, why=why)
    if is_open and not refused:
        raise Unclear(samples)
    return verdict


@dataclass(frozen=True)
class _Trial:
    """Interleaved trial of one region: stock against the validated variants, alone or in a loop harness."""

    outcome: Comparison
    task: Task
    modules: Mapping[str, Module]
    """Variant → the timed module."""
    looped: ExtractedModule | None
    effort: Effort
    deadline: Deadline

    @classmethod
    def of(
        cls, outcome: Comparison, task: Task, modules: Mapping[str, Module], effort: Effort, deadline: Deadline
    ) -> _Trial:
        """The trial of a region from its variants' modules; in a loop, builds the loop harness of each."""
        looped = None
        if task.extracted.loop is not None:
            looped = in_loop(task.extracted)
            modules = _modules(task, looped, list(modules), deadline)
        return cls(outcome, task, modules, looped, effort, deadline)

    def timed(
        self, variants: Sequence[str], before: Sequence[Pairs] = (), *, retain_results: bool = False
    ) -> list[Time]:
        """Interleaved times, stock first; `before` and `retain_results` as for `Comparison.interleaved`."""
        modules = [self.modules[variant] for variant in variants]
        if self.looped is not None:
            return self.outcome.interleaved_in_loop(self.looped, modules, self.effort.seconds, MIN_GAIN_IN_LOOP, before)
        return self.outcome.interleaved(modules, self.effort.seconds, LEAST_GAIN, before, retain_results=retain_results)

    def least(self, stock: float) -> float:
        """Required gain of a call in seconds, besides the noise."""
        return MIN_GAIN_IN_LOOP * stock if self.looped is not None else LEAST_GAIN * stock + LEAST_SECONDS

    def wins(self, time: Time, stock: float) -> bool:
        return time.wins(self.least(stock))

    @property
    def further_timings(self) -> int:
        """Number of confirmations that a winning variant needs."""
        if self.looped is not None:
            return 1
        # With other regions there is a whole-program trial as well.
        return TIMINGS_OF_AN_ONLY_REGION if self.task.is_only_region else 0


def _fastest_without_stock(found: dict[str, Time], stock: Time, description: dict[str, Any]) -> Measurement:
    """The measurement where stock's result is wrong: chooses the fastest variant, whatever stock's time."""
    seconds = {STOCK: stock.seconds} | {variant: time.seconds for variant, time in found.items()}
    chosen = min(found, key=lambda variant: found[variant].seconds)
    return Measurement(chosen, seconds, max(found[chosen].gain, 0.0), found[chosen].error, **description)


def _lost_confirmation(trial: _Trial, verdict: Measurement, first: Time) -> tuple[Time, Time] | None:
    """Times of stock and of the chosen variant in the confirmation that it lost; None if it won them all.

    Page faults of fresh memory, or threads that are slow to wake, last for a whole trial: a variant has to win each
    confirmation that the time allows, at least one. An undecided confirmation counts together with the trials before
    it, the `first` included.
    """
    gains = first.gains
    for turn in range(trial.further_timings):
        try:
            stock, variant_time = _confirmation(trial, verdict.chosen, retain_results=turn % 2 == 0)
        except OutOfTime:
            if not turn:
                raise
            return None
        gains += variant_time.gains
        # The first look at the combined turns was the first trial.
        combined = replace(variant_time, gains=gains, fewest=len(gains) + 1)
        is_undecided = variant_time.may_win(stock.seconds, trial.least(stock.seconds))
        if not trial.wins(combined if is_undecided else variant_time, stock.seconds):
            return stock, variant_time
    return None


def _confirmation(trial: _Trial, variant: str, *, retain_results: bool) -> tuple[Time, Time]:
    """Interleaved trial of stock and one variant after a pause; repeated until it is decided or time is up."""
    trial.deadline.demand(PAUSE)
    sleep(PAUSE)
    stock, variant_time = trial.timed([variant], retain_results=retain_results)
    for _ in range(MOST_UNCLEAR - 1):
        is_decided = variant_time.is_disturbed or not variant_time.may_win(stock.seconds, trial.least(stock.seconds))
        if is_decided or trial.deadline.is_over:
            break
        stock, variant_time = trial.timed([variant], retain_results=retain_results)
    return stock, variant_time


def _modules(task: Task, extracted: ExtractedModule, variants: Sequence[str], deadline: Deadline) -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for variant in variants:
        deadline.demand(0.0)
        module = task.build(extracted, variant)
        if module is not None:
            modules[variant] = module
    if not modules:
        raise Unmeasurable("in its extracted module, the region is matched in another way")
    return modules


def _verdict(trial: _Trial, found: dict[str, Time], reference: Time, description: dict[str, Any]) -> Measurement:
    """The measurement of a trial: chooses the variant with the largest gain, if the gain is clear."""
    stock = reference.seconds
    chosen = _fastest(trial, found, stock)
    shares_fusion, least = trial.task.shares_fusion, trial.least(stock)
    unclear = any(time.may_win(stock, least) for time in found.values())
    provisional = any(time.is_doubtful(stock) for time in found.values()) and not description["refused"]
    if chosen == STOCK and unclear and not shares_fusion and not description["refused"] and not provisional:
        raise Unclear(_samples(found))
    shown = found[chosen] if chosen != STOCK else max(found.values(), key=lambda time: time.gain)
    seconds = {STOCK: stock} | {variant: time.seconds for variant, time in found.items()}
    gain = shown.gain if chosen != STOCK else 0.0
    why = missing_gain(min(found.values(), key=lambda time: time.seconds), stock, least) if chosen == STOCK else ""
    verdict = Measurement(chosen, seconds, gain, shown.error, shares_fusion=shares_fusion, why=why, **description)
    return _provisional(verdict, reference, found) if provisional else verdict


def _provisional(verdict: Measurement, stock: Time, found: Mapping[str, Time]) -> Measurement:
    """The provisional measurement of a disturbed trial: by minimum times, the fastest variant if it is far ahead."""
    fastest = min(found, key=lambda variant: found[variant].least)
    variant_time = found[fastest].least
    is_clear = stock.least >= CLEAR * variant_time
    seconds = {**verdict.seconds, STOCK: stock.least, **{variant: time.least for variant, time in found.items()}}
    chosen, gain = (fastest, stock.least - variant_time) if is_clear else (STOCK, 0.0)
    samples = _samples(found)
    return replace(verdict, chosen=chosen, seconds=seconds, gain=gain, provisional=True, samples=samples, why="")


def _samples(found: Mapping[str, Time]) -> dict[str, Pairs]:
    """The undisturbed samples of each variant."""
    return {variant: time.pairs for variant, time in found.items() if time.pairs}


def _lost_confirmation_reason(trial: _Trial, lost_confirmation: tuple[Time, Time]) -> str:
    stock, variant_time = lost_confirmation
    reason = missing_gain(variant_time, stock.seconds, trial.least(stock.seconds))
    return f"it won one trial and not another, in which {reason or 'it was slower'}"


def _fastest(trial: _Trial, found: dict[str, Time], stock: float) -> str:
    chosen = STOCK
    for variant, time in found.items():
        # Earlier variants are likelier by the cost model: a later one has to be better by more than noise.
        best = found[chosen].gain + 2 * time.error + 0.01 * stock if chosen != STOCK else 0.0
        if trial.wins(time, stock) and time.gain > best:
            chosen = variant
    return chosen
