"""Tuner: measures a module's requests, the most promising first, within a budget and under the measurement lock.

It must not fail inside a user's compile: regions that cannot be measured are left to the cost model and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.attempts import Attempts
from hlo_dispatch.autotune.compare.measure import Effort, measure
from hlo_dispatch.autotune.counters import TuningCounters
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.findings import Findings, Names
from hlo_dispatch.autotune.measurement_lock import exclusive_measurement
from hlo_dispatch.autotune.measurement_requests import MeasurementRequest, Stock, Variants
from hlo_dispatch.autotune.region_task import names_of, reproducer_saver, task_of
from hlo_dispatch.autotune.run.deadline import Deadline
from hlo_dispatch.autotune.run.watchdog import has_stuck_threads
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.selection.candidate import DefaultVariant, KernelSupportQuery
from hlo_dispatch.selection.context import Context
from hlo_dispatch.selection.measurements import KnownMeasurements, Measurement

REPLANNING_FACTOR = 2
"""Number of times that a module is planned again after measuring."""
REPLANNING_SECONDS = 0.5
"""Seconds beyond the budget that planning again and writing the module may take."""
RESUMED_BUDGETS = 3
"""Number of budgets for a module that an earlier compile could not finish."""
PROGRAMS_IN_A_TRIAL = 3
"""Programs that compile and run in the reserved time: stock, and the two most likely to win."""
MAX_RESERVED = 0.5
"""Maximum reserved fraction of the remaining time."""

_PROGRAM_NAMES = Names(whole_program_trial.PROGRAM, "", whole_program_trial.ALL_KERNELS)

TuningProgress = Callable[[str, int, int, float], None]
"""Progress callback: what is measured (empty: it is over), regions done, number of regions (0: the whole program),
remaining seconds."""


def silent(what: str, done: int, count: int, remaining: float) -> None:
    """Progress callback that does nothing."""


BuildOne = Callable[[ExtractedModule, DefaultVariant, str], Module | None]
"""(extracted module, default variant, variant) → the module with its kernel call."""


@dataclass(frozen=True)
class MeasuredRegion:
    """One region and its measurement."""

    region: MeasurementRequest
    measured: Measurement


@dataclass
class Tuner:
    """Tuner with its store, its budget and its counters."""

    store: Store
    context: Context
    knowledge: KnownMeasurements
    effort: Effort
    build: BuildOne
    threads: int
    split: Splitter | None = None
    """Partitions modules with frozen inputs; needed where there are some."""
    frozen: frozenset[int] = frozenset()
    """Numbers of the program's frozen parameters."""
    widened: frozenset[int] = frozenset()
    """Further ones, of narrower stored types."""
    budget: float | None = None
    """Seconds for one module; None: unlimited."""
    step: TuningProgress = silent
    timed: bool = True
    """False only validates results."""
    tally: TuningCounters = field(default_factory=TuningCounters)
    given_up: set[str] = field(default_factory=set[str])
    """Digests that this process does not try to measure again."""
    records: list[MeasuredRegion] = field(default_factory=list[MeasuredRegion])
    """Regions with new measurements, in order."""
    remembers: bool = True
    prepare: Callable[[], None] = lambda: None
    """Called before the first measurement."""
    _begun: float = 0.0
    _deadline: Deadline = field(default_factory=Deadline)
    _has_planned: bool = False
    _postponed: set[str] = field(default_factory=set[str])
    """Digests that this compile had no time for."""
    _reached_all: bool = True
    _is_resumed: bool = False
    """Whether an earlier compile could not finish the module."""
    _had_time: bool = False
    """Whether this compile measured anything, or found it measured meanwhile."""
    _reserved: float = 0.0
    """Seconds reserved for the whole-program trial."""
    _has_provisional: bool = False
    """Whether a region's measurement is provisional, so that another compile may improve it."""

    def for_one_module(self) -> Tuner:
        """A tuner with a new budget that starts now; it shares counters and measurements with this one."""
        begun = replace(self, _postponed=set())
        if self.budget is not None:
            begun._begun = time.perf_counter()
            begun._deadline = Deadline(self.budget)
        return begun

    def resume(self) -> None:
        """Extend the budget of a continued module, so that two compiles finish it."""
        self._is_resumed = True
        if self.budget is not None:
            self._deadline = self._deadline.earlier(-(RESUMED_BUDGETS - 1) * self.budget)

    @property
    def is_thorough(self) -> bool:
        """Whether it measures everything without a budget, also what earlier compiles gave up."""
        return self.effort.is_thorough

    def finish(self, program: str) -> None:
        """Mark a program as measured for later compiles, unless it, or a region of it, is provisional."""
        findings = self._attempts.findings
        if self._had_time and (closed := findings.finished(program, is_open=self._has_provisional)) is not None:
            self.knowledge.add(program, closed)

    @cached_property
    def _attempts(self) -> Attempts:
        findings = Findings(self.store, self.context, self.timed)
        return Attempts(findings, self.knowledge, self.tally, self.given_up, self._postponed, self.is_thorough)

    def with_frozen(self, frozen: frozenset[int], widened: frozenset[int]) -> Tuner:
        """The same tuner for a module with frozen parameters, and further ones of narrower stored types."""
        return replace(self, frozen=frozen, widened=widened)

    def remaining_seconds(self) -> float:
        """Seconds that remain for measuring.

        Planning again is expected to take as long as planning took until the first request.
        """
        if not self._has_planned and self.budget is not None:
            planning = time.perf_counter() - self._begun
            self._deadline = self._deadline.earlier(max(0.0, REPLANNING_FACTOR * planning - REPLANNING_SECONDS))
        self._has_planned = True
        # A stuck thread would disturb every measurement.
        return 0.0 if has_stuck_threads() else self._deadline.remaining

    def reserve(self, module: Module) -> None:
        """Reserve time of the budget for the whole-program trial."""
        expected = whole_program_trial.expected_seconds(module, PROGRAMS_IN_A_TRIAL)
        remaining = self._deadline.remaining if self.budget is not None else 0.0
        self._reserved = (
            0.0 if expected is None else min(expected + whole_program_trial.QUICK_SECONDS, MAX_RESERVED * remaining)
        )

    def __call__(self, requests: Sequence[MeasurementRequest], support_query: KernelSupportQuery) -> int:
        """Measure as many regions as the budget allows; returns the number of new measurements."""
        todo = [region for region in requests if not self._attempts.has_ended(region.digest)]
        todo.sort(key=self._is_provisional)  # regions without any measurement come first
        if not todo:
            return 0
        start = time.perf_counter()
        newly_known = done = 0
        try:
            for region in todo:
                remaining = self.remaining_seconds()
                if remaining <= self._reserved:
                    break
                if not done:
                    self.prepare()
                # The whole-program trial spends what is reserved for it: a compile takes all of this.
                self.step(region.default.candidate.match.formula, done, len(todo), remaining)
                newly_known += self._lookup_or_measure(region, support_query)
                done += 1
        finally:
            self.step("", done, len(todo), 0.0)
            self.tally.seconds += time.perf_counter() - start
            self.tally.unreached |= {region.digest for region in todo[done:]}
            self._reached_all = done == len(todo) and not self._postponed
        return newly_known

    def _is_provisional(self, region: MeasurementRequest) -> bool:
        known = self.knowledge.get(region.digest)
        return known is not None and known.provisional

    def _lookup_or_measure(self, region: MeasurementRequest, support_query: KernelSupportQuery) -> bool:
        with exclusive_measurement(self.store.directory, self._deadline) as is_ours:
            if not is_ours:
                return False
            self._had_time = True
            before = measured = self.store.get(self.context, region.digest) if self.timed else None
            if measured is None or not self._is_sufficient(measured):
                measured = self._attempts.attempt(
                    region.digest, names_of(region), lambda: self._measured(region, support_query, before)
                )
        if measured is None:
            return False
        if measured.failed_attempts:
            self.knowledge.add(region.digest, measured)
            return False
        if measured.provisional:
            self._has_provisional = True
            self.given_up.add(region.digest)
        if self.remembers:
            self.records.append(MeasuredRegion(region, measured))
        if not measured.seconds and not measured.refused:
            return False  # validated only: its speed is unknown
        self.knowledge.add(region.digest, measured)
        return True

    def _measured(
        self, region: MeasurementRequest, support_query: KernelSupportQuery, before: Measurement | None
    ) -> Measurement:
        default = region.default
        task = task_of(
            region,
            support_query,
            most_variants=self.effort.most_variants,
            build=lambda module, variant: self.build(module, default, variant),
            threads=self.threads,
            split=self.split,
            before=before.samples if before is not None else {},
        )
        saver = reproducer_saver(self.store.directory, region)
        return measure(task, self.effort, saver, timed=self.timed, deadline=self._deadline)

    def measure_program(
        self, program: str, stock: Stock, variants: Variants, *, is_final: bool, is_hurried: bool = False
    ) -> None:
        """Run the whole-program trial, before measuring regions or, if all of them were reached, after that."""
        remaining = self.remaining_seconds()
        # Without a budget every region is reached, and the final trial follows anyway.
        has_all = self._reached_all or self._is_resumed
        is_superfluous = not has_all if is_final else self.budget is None
        known = self.knowledge.get(program)
        is_given_up = known is not None and known.failed_attempts > 0 and self._is_sufficient(known)
        if is_given_up or not self.timed or is_superfluous or self._attempts.has_ended(program):
            return
        if remaining <= 0:
            # Its regions take longer than two compiles measure: a third one would not end either.
            if is_final and self._is_resumed and self._had_time:
                self._attempts.note_failure(program, _PROGRAM_NAMES)
            return
        start = time.perf_counter()
        with exclusive_measurement(self.store.directory, self._deadline) as is_ours:
            if not is_ours:
                return
            self._had_time = True
            self.prepare()
            self.step(whole_program_trial.PROGRAM, 0, 0, remaining)
            before = measured = self.store.get(self.context, program)
            # Thorough measurements of regions may have changed the compared programs.
            is_old = is_final and measured is not None and (not measured.thorough or self.effort.is_thorough)
            if measured is not None and (measured.failed_attempts or measured.provisional):
                is_old = not self._is_sufficient(measured)
            if measured is None or is_old:
                measured = self._attempts.attempt(
                    program,
                    _PROGRAM_NAMES,
                    lambda: self._compared(stock, variants, before, is_final=is_final, is_hurried=is_hurried),
                    is_repeated=not is_final,
                    is_last=self._is_resumed,
                )
            self.step("", 0, 0, 0.0)
        if measured is not None:
            self.knowledge.add(program, measured)
            if measured.provisional and is_final:
                self.given_up.add(program)
        self.tally.seconds += time.perf_counter() - start

    def _compared(
        self, stock: Stock, variants: Variants, before: Measurement | None, *, is_final: bool, is_hurried: bool
    ) -> Measurement:
        module, is_part = stock()
        measured = whole_program_trial.compare(
            module,
            variants(),
            remaining=self._deadline.remaining,
            # The regions of most time are worth as much as what the cost model's plan gains.
            reserved=0.0 if is_final else MAX_RESERVED * self._deadline.remaining,
            before=before.samples if before is not None else {},
            is_final=is_final,
            is_hurried=is_hurried,
            is_part=is_part,
            frozen=self.frozen | self.widened,
            split=partial(self.split, widened=self.widened) if self.split is not None else None,
        )
        return replace(measured, thorough=measured.thorough and not self._has_provisional)

    def _is_sufficient(self, known: Measurement) -> bool:
        """Whether another process's measurement suffices."""
        if known.provisional:
            return not (known.is_worth_remeasuring or self.effort.is_thorough)
        if known.failed_attempts:
            return known.timed_out_after > 0 or (known.is_given_up and not self.effort.is_thorough)
        return known.thorough or not self.effort.is_thorough
