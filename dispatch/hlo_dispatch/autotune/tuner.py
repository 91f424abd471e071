"""Measures what a module's plan does not know: largest first, within a budget, one process at a time.

Failing is no option inside a user's compile: what cannot be measured is left to the heuristic and counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.autotune.compare.measure import Effort, Task, Unclear, Unmeasurable, measure
from hlo_dispatch.autotune.compare.reproducer import Reproducer
from hlo_dispatch.autotune.counters import TuningCounters
from hlo_dispatch.autotune.extract.extracted_module import ExtractedModule
from hlo_dispatch.autotune.findings import Findings
from hlo_dispatch.autotune.measurement_lock import exclusive_measurement
from hlo_dispatch.autotune.measurement_requests import MeasurementRequest
from hlo_dispatch.autotune.run.deadline import Deadline, OutOfTime
from hlo_dispatch.autotune.run.watchdog import TimedOut, has_stuck_threads
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Splitter
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.selection.candidate import Default, KernelSupportQuery, variants_to_measure
from hlo_dispatch.selection.context import Context
from hlo_dispatch.selection.measurements import MAX_FAILED_ATTEMPTS, STOCK, KnownMeasurements, Measurement

PLANNINGS = 2
"""So often a module is planned again when measuring is over."""
SPARE = 0.5
"""Seconds after the budget that planning again, and writing the module, may take."""
LONGER = 3
"""So many budgets may be spent on a module that an earlier compile began with and could not finish."""
PROGRAMS_IN_A_TRIAL = 3
"""Stock, and the two most likely to win: so many compile and run in the time that is reserved."""
MOST_RESERVED = 0.5
"""Of the time that is left."""
_logger = logging.getLogger("hlo_dispatch")

TuningProgress = Callable[[str, int, int, float], None]
"""Told what is measured (nothing: it is over), how many regions are done, how many there are (0: it is the whole
program), and the seconds that are left."""


def silent(what: str, done: int, count: int, remaining: float) -> None:
    """Tells nobody."""


BuildOne = Callable[[ExtractedModule, Default, str], bytes | None]
"""An extracted module, what is dispatched by default, a variant → the module with its one kernel call."""


@dataclass(frozen=True)
class MeasuredRegion:
    """One region and what is known of it now."""

    region: MeasurementRequest
    measured: Measurement


@dataclass
class Tuner:
    """Measures regions into a store and into what this process knows."""

    store: Store
    context: Context
    knowledge: KnownMeasurements
    effort: Effort
    build: BuildOne
    threads: int
    split: Splitter | None = None
    """Cuts off what depends on frozen inputs alone; needed where there are some."""
    frozen: frozenset[int] = frozenset()
    """Numbers of the program's own parameters that are."""
    budget: float | None = None
    """Seconds for one module; None: as long as it takes."""
    step: TuningProgress = silent
    timed: bool = True
    """False only compares results."""
    tally: TuningCounters = field(default_factory=TuningCounters)
    given_up: set[str] = field(default_factory=set[str])
    """Regions that cannot be measured; not tried again in this process."""
    records: list[MeasuredRegion] = field(default_factory=list[MeasuredRegion])
    """What was learnt, in order."""
    remembers: bool = True
    prepare: Callable[[], None] = lambda: None
    """Called before anything is measured."""
    _begun: float = 0.0
    _deadline: Deadline = field(default_factory=Deadline)
    _has_planned: bool = False
    _postponed: set[str] = field(default_factory=set[str])
    """What there was no time for in this compile."""
    _tries: int = 0
    """What was measured, or tried, in this very compile."""
    _reached_all: bool = True
    _is_resumed: bool = False
    _had_time: bool = False
    """Whether this compile came to measure anything, or found it measured."""
    _reserved: float = 0.0
    """Seconds that regions leave to the whole program."""
    _has_provisional: bool = False
    """Whether a region was measured while the machine was busy, so that another compile may know more."""

    def for_one_module(self) -> Tuner:
        """The same tuner, its budget beginning now; it counts and remembers in the same places."""
        begun = replace(self, _postponed=set())
        if self.budget is not None:
            begun._begun = time.perf_counter()
            begun._deadline = Deadline(self.budget)
        return begun

    def resume(self) -> None:
        """Take longer than the compile that began: two must do, however many more the budget alone would need."""
        self._is_resumed = True
        if self.budget is not None:
            self._deadline = self._deadline.earlier(-(LONGER - 1) * self.budget)

    @property
    def is_thorough(self) -> bool:
        """Whether it takes as long as it takes, whatever earlier compiles have given up."""
        return self.effort.is_thorough

    def finish(self, program: str) -> None:
        """No later compile goes on measuring this program, unless it, or a region of it, is provisional."""
        if self._had_time and (closed := self._findings.finished(program, is_open=self._has_provisional)) is not None:
            self.knowledge.add(program, closed)

    @cached_property
    def _findings(self) -> Findings:
        return Findings(self.store, self.context, self.timed)

    def with_frozen(self, frozen: frozenset[int]) -> Tuner:
        """The same for a module some of whose parameters are known before it is called."""
        return replace(self, frozen=frozen)

    def _remaining(self) -> float:
        """Seconds for measuring.

        What planning the module took until the first question, planning it again will take.
        """
        if not self._has_planned and self.budget is not None:
            planning = time.perf_counter() - self._begun
            self._deadline = self._deadline.earlier(max(0.0, PLANNINGS * planning - SPARE))
        self._has_planned = True
        # Beside what could not be stopped nothing can be timed.
        return 0.0 if has_stuck_threads() else self._deadline.remaining

    def reserve(self, serialized: bytes) -> None:
        """Leave time for the trial of a whole program when its regions are measured."""
        expected = whole_program_trial.expected_seconds(Module.from_bytes(serialized), PROGRAMS_IN_A_TRIAL)
        remaining = self._deadline.remaining if self.budget is not None else 0.0
        self._reserved = (
            0.0 if expected is None else min(expected + whole_program_trial.QUICK_SECONDS, MOST_RESERVED * remaining)
        )

    def __call__(self, unknown: Sequence[MeasurementRequest], ask: KernelSupportQuery) -> int:
        """Measure as many as the budget allows; returns how many are known now."""
        todo = [region for region in unknown if region.digest not in self.given_up | self._postponed]
        todo.sort(key=self._is_provisional)  # what has no answer comes first
        if not todo:
            return 0
        start = time.perf_counter()
        newly_known = done = 0
        try:
            for region in todo:
                remaining = self._remaining() - self._reserved
                if remaining <= 0:
                    break
                if not done:
                    self.prepare()
                self.step(region.default.candidate.match.formula, done, len(todo), remaining)
                newly_known += self._lookup_or_measure(region, ask)
                done += 1
        finally:
            self.step("", done, len(todo), 0.0)
            self.tally.seconds += time.perf_counter() - start
            self.tally.unreached += len(todo) - done
            self._reached_all = done == len(todo) and not self._postponed
        return newly_known

    def _is_provisional(self, region: MeasurementRequest) -> bool:
        known = self.knowledge.get(region.digest)
        return known is not None and known.provisional

    def _lookup_or_measure(self, region: MeasurementRequest, ask: KernelSupportQuery) -> bool:
        with exclusive_measurement(self.store.directory, self._deadline) as is_ours:
            if not is_ours:
                return False
            self._had_time = True
            measured = self.store.get(self.context, region.digest) if self.timed else None
            if measured is not None and self._is_sufficient(measured):
                self.tally.found_in_store += 1
            else:
                measured = self._attempt(region.digest, lambda: self._measured(region, ask), *_names(region))
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
            return False  # its results are right, and nothing is known of its speed
        self.knowledge.add(region.digest, measured)
        return True

    def _measured(self, region: MeasurementRequest, ask: KernelSupportQuery) -> Measurement:
        task = self._task(region, ask)
        return measure(task, self.effort, self._reproducer_saver(region), timed=self.timed, deadline=self._deadline)

    def measure_program(
        self,
        program: str,
        stock: bytes,
        variants: Callable[[], Iterable[tuple[str, bytes]]],
        *,
        is_final: bool,
        is_hurried: bool = False,
    ) -> None:
        """Measure a whole program against stock, before its regions or, if all of them were reached, after them."""
        remaining = self._remaining()
        # Without a budget every region is reached, and the answer would be asked for once more.
        has_all = self._reached_all or self._is_resumed
        is_superfluous = not has_all if is_final else self.budget is None
        known = self.knowledge.get(program)
        is_given_up = known is not None and known.failed_attempts > 0 and self._is_sufficient(known)
        if (
            is_given_up
            or not self.timed
            or is_superfluous
            or remaining <= 0
            or program in self.given_up | self._postponed
        ):
            return
        start = time.perf_counter()
        with exclusive_measurement(self.store.directory, self._deadline) as is_ours:
            if not is_ours:
                return
            self._had_time = True
            self.prepare()
            self.step(whole_program_trial.PROGRAM, 0, 0, remaining)
            measured = self.store.get(self.context, program)
            # What was measured thoroughly may have changed what is compared.
            is_old = is_final and measured is not None and (not measured.thorough or self.effort.is_thorough)
            if measured is not None and (measured.failed_attempts or measured.provisional):
                is_old = not self._is_sufficient(measured)
            if measured is None or is_old:
                measured = self._attempt(
                    program,
                    lambda: self._limited_by_its_regions(
                        whole_program_trial.compare(
                            stock,
                            variants(),
                            remaining=self._deadline.remaining,
                            is_final=is_final,
                            is_hurried=is_hurried,
                            frozen=self.frozen,
                            split=self.split,
                        )
                    ),
                    whole_program_trial.PROGRAM,
                    "",
                    whole_program_trial.ALL_KERNELS,
                )
            self.step("", 0, 0, 0.0)
        if measured is not None:
            self.knowledge.add(program, measured)
            if measured.provisional and is_final:
                self.given_up.add(program)
        self.tally.seconds += time.perf_counter() - start

    def _limited_by_its_regions(self, measured: Measurement) -> Measurement:
        return replace(measured, thorough=measured.thorough and not self._has_provisional)

    def _attempt(
        self, digest: str, make: Callable[[], Measurement], formula: str, shape: str, kernel: str
    ) -> Measurement | None:
        """Measure, and keep what was found; None where nothing was, which is not tried again in this process."""
        self.given_up.add(digest)
        self._tries += 1
        try:
            measured = make()
        except Unmeasurable as reason:
            self.tally.unmeasurable += 1
            _logger.debug("%s cannot be measured: %s", formula, reason)
            self._note_failed_attempt(digest, formula, shape, kernel)
            return None
        except OutOfTime:
            # Another compile may have more time for it, if this one had not all the time there is.
            self._postponed.add(digest)
            self.given_up.discard(digest)
            self.tally.unreached += 1
            if self._tries == 1:
                self._note_failed_attempt(digest, formula, shape, kernel)
            return None
        except Unclear:
            self.tally.unclear += 1
            self._note_failed_attempt(digest, formula, shape, kernel)
            return None
        except TimedOut as problem:
            self.tally.unmeasurable += 1
            sentence = "measuring %s is given up on this machine (`hlo-dispatch cache clear` forgets that): %s"
            _logger.warning(sentence, formula, problem)
            self._note_failed_attempt(digest, formula, shape, kernel, timed_out_after=problem.seconds)
            return None
        except Exception as error:
            self.tally.failures += 1
            if is_strict():
                raise
            _logger.debug("measuring %s failed", formula, exc_info=error)
            return None
        self.tally.measured += 1
        for sentence in measured.refused.values():
            _logger.warning("a kernel is not used because its result is wrong: %s", sentence)
        self.given_up.discard(digest)
        return self._findings.stored(digest, measured)

    def _is_sufficient(self, known: Measurement) -> bool:
        """Whether what another process found need not be measured again."""
        if known.provisional:
            return not (known.is_worth_remeasuring or self.effort.is_thorough)
        if known.failed_attempts:
            return known.timed_out_after > 0 or (known.is_given_up and not self.effort.is_thorough)
        return known.thorough or not self.effort.is_thorough

    def _note_failed_attempt(
        self, digest: str, formula: str, shape: str, kernel: str, timed_out_after: float = 0.0
    ) -> None:
        """One more process has no answer: after a few of them the others do not try, and their compiles are quick.

        Args:
            endless: seconds after which it had not ended; no other is to try that.
        """
        known = self.store.get(self.context, digest) if self.timed else None
        if not self.timed or (known is not None and not known.failed_attempts and not known.provisional):
            return  # an earlier answer stands
        # Tuning takes its time: who has no answer then has none.
        is_settled = self.effort.is_thorough or timed_out_after > 0
        failed_attempts = MAX_FAILED_ATTEMPTS if is_settled else 1 + (known.failed_attempts if known is not None else 0)
        noted = Measurement(
            STOCK,
            {},
            thorough=self.effort.is_thorough,
            formula=formula,
            shape=shape,
            kernel=kernel,
            failed_attempts=failed_attempts,
            timed_out_after=timed_out_after,
        )
        self.store.put(self.context, digest, noted)
        self.knowledge.add(digest, noted)

    def _task(self, region: MeasurementRequest, ask: KernelSupportQuery) -> Task:
        default = region.default
        extracted = region.extractor.extract(default.candidate.match.in_module)
        if isinstance(extracted, Refusal):
            raise Unmeasurable(extracted.sentence)
        formula, shape, kernel = _names(region)
        return Task(
            extracted=extracted,
            variants=variants_to_measure(default, ask, self.effort.most_variants),
            build=lambda module, variant: self.build(module, default, variant),
            tolerance=region.numerics.tolerance,
            footprint=region.footprint,
            shares_fusion=region.shares_fusion,
            is_only_region=region.is_only_region,
            threads=self.threads,
            formula=formula,
            shape=shape,
            kernel=kernel,
            split=self.split,
        )

    def _reproducer_saver(self, region: MeasurementRequest) -> Callable[[str, Reproducer], str]:
        def keep(variant: str, reproducer: Reproducer) -> str:
            folder = self.store.directory / "reproducers" / f"{region.digest[:16]}-{_file_name(variant)}"
            try:
                return str(reproducer.keep(folder))
            except OSError as problem:
                return f"(could not be kept: {problem})"

        return keep


def _names(region: MeasurementRequest) -> tuple[str, str, str]:
    """Formula, shape of the result, kernel; for people."""
    match = region.default.candidate.match
    return match.formula, str(match.output.shape).partition("{")[0], match.kernel


def _file_name(variant: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in variant)
