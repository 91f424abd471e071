"""Program tuner: chooses a module's plans by stored measurements, new ones, and whole-program trials.

Without stored measurements it first runs a whole-program trial of the cost model's plan against stock XLA, which is the
most informative single measurement: the first compile is then no worse than the better of the two. It measures regions
in the remaining time. Once all regions are measured, it tries the plans of the different plan strategies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hlo_dispatch.autotune.extract.leading_part import leading_part
from hlo_dispatch.autotune.measurement_requests import MeasurementRequests, ModuleMeasurer
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ModuleProto
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.selection.candidate import KernelSupportQuery
from hlo_dispatch.selection.measurements import STOCK, KnownMeasurements, Measurement
from hlo_dispatch.selection.strategies import MEASURED_JOINTLY, Strategy, chosen_by, to_try, to_try_first

# The first plan uses the cost model, the second one measurements, which may expose new regions.
_MAX_PLANNINGS = 3
# A measurement that a busy machine disturbed is repeated with the budget of a first compile.
_MAX_RESUMPTIONS = 2
# A program of one call needs no trial within a compile's budget: its region is measured. Alone, a region has to gain
# several microseconds, though, which may be a large part of its program.
_MIN_CALLS_FOR_TRIAL = 2
_MIN_CALLS_FOR_THOROUGH_TRIAL = 1

Plans = list[ComputationPlan]


@dataclass(frozen=True)
class ProgramTuner:
    """The tuner of one module; `choose_plans()` is called once."""

    stock: Module
    """The module as XLA made it."""
    requests: MeasurementRequests
    knowledge: KnownMeasurements
    measure: ModuleMeasurer | None
    """Measures the module's regions and the program; None: no measurements."""
    support_query: KernelSupportQuery
    plan: Callable[[Strategy], Plans]
    """Plans the module, and collects the requests of that plan in `requests`."""
    rewritten: Callable[[Module, Strategy], Module | None]
    """(stock's module, plan strategy) → the rewritten module, without measuring; None: nothing is dispatched."""

    def choose_plans(self) -> Plans:
        """Choose the plans, after measuring as far as the budget goes."""
        program = self.requests.program
        verdict = self._verdict()
        plans = self.plan(self._strategy())
        known = self.knowledge.get(program)
        if self.measure is None or (verdict is not None and verdict.thorough):
            return _follow_verdict(plans, verdict)
        if known is not None and known.is_given_up and not self.measure.is_thorough:
            return plans  # two compiles used their budgets; the cost model decides the rest
        if known is not None:
            if known.disturbed_attempts < _MAX_RESUMPTIONS:
                self.measure.resume()
                self.measure.reserve(self._part or self.stock)
        plans = self._measure(self.measure, program, plans)
        if known is not None:
            self.measure.finish(program)
        verdict = self._verdict()
        if self.requests.strategy != (strategy := self._strategy()):
            plans = self.plan(strategy)
        return _follow_verdict(plans, verdict)

    def saved(self, plans: Plans) -> float | None:
        """Seconds that a run of the program saves by these plans, as far as they were measured."""
        verdict = self._verdict()
        if verdict is not None:
            return None if verdict.trip_limit or verdict.is_part else verdict.gain
        measured = [d.saved for plan in plans for _, d in plan.decisions.values() if d.saved is not None]
        return sum(measured) if measured else None

    @property
    def is_tried(self) -> bool:
        """Whether a whole-program trial decides the program."""
        return self._verdict() is not None

    @property
    def is_stock(self) -> bool:
        """Whether stock won the whole-program trial."""
        verdict = self._verdict()
        return verdict is not None and verdict.chosen == STOCK

    def _verdict(self) -> Measurement | None:
        """The stored whole-program trial; None where it decides nothing."""
        known = self.knowledge.get(self.requests.program)
        if known is None or known.failed_attempts or known.is_undecided:
            return None
        return known

    def _strategy(self) -> Strategy:
        """The plan strategy that follows from the whole-program trial."""
        verdict = self._verdict()
        return chosen_by(verdict) if verdict is not None else self.requests.untried

    def _measure(self, measure: ModuleMeasurer, program: str, plans: Plans) -> Plans:
        """Measure the program and its regions as far as the budget goes; returns the newest plans."""
        pending, possible_calls = self.requests.pending(), self._possible_calls(plans)
        had_regions = bool(pending)
        # An earlier process's trial that decided nothing goes on once the regions are measured.
        is_unknown = self.knowledge.get(program) is None
        if (pending or self.requests.is_moved) and possible_calls >= _MIN_CALLS_FOR_TRIAL and is_unknown:
            first = to_try_first(has_frozen=self.requests.has_frozen)
            self._try(measure, program, first, is_final=False)
        for _ in range(_MAX_PLANNINGS):
            if not pending or not measure(pending, self.support_query):
                break
            # Dispatching a region, or no longer doing so, changes the matches of its neighbours.
            plans = self.plan(MEASURED_JOINTLY if self._verdict() is not None else self.requests.untried)
            pending, possible_calls = self.requests.pending(), max(possible_calls, self._possible_calls(plans))
        least_calls = _MIN_CALLS_FOR_THOROUGH_TRIAL if measure.is_thorough else _MIN_CALLS_FOR_TRIAL
        if possible_calls >= least_calls or self._verdict() is not None:
            self._try(measure, program, to_try(self._verdict()), is_final=True, is_hurried=had_regions)
        return plans

    @cached_property
    def _part(self) -> Module | None:
        """The leading part that trials run; None: they run the whole program, as where time has no limit."""
        return leading_part(self.stock) if self.measure is not None and not self.measure.is_thorough else None

    def _try(
        self,
        measure: ModuleMeasurer,
        program: str,
        strategies: Sequence[Strategy],
        *,
        is_final: bool,
        is_hurried: bool = False,
    ) -> None:
        """Run a whole-program trial of these strategies.

        A leading part does not show what a strategy makes of the regions behind it: once those are measured, only
        strategies count that leave clear losses to XLA.
        """

        def variants() -> Iterator[tuple[str, Module]]:
            candidates = [s for s in strategies if self._part is None or not is_final or s.heeds_clear_losses]
            return self._variants(self._part or self.stock, candidates)

        measure.measure_program(
            program,
            lambda: (self._part or self.stock, self._part is not None),
            variants,
            is_final=is_final,
            is_hurried=is_hurried,
        )

    def _possible_calls(self, plans: Sequence[ComputationPlan]) -> float:
        """Number of kernel calls of one run of the program, or that it could make according to its measurements.

        The cost model decides regions with small gains until a trial shows their joint gain: that
        none of them is dispatched is no reason not to try the program. Nor has moved code a region that shows its gain.
        """
        if self.requests.is_moved:
            return math.inf
        made = sum(len(plan.dispatched) * self.requests.executions(plan.graph) for plan in plans if plan.dispatched)
        return max(made, self.requests.possible_calls)

    def _variants(self, stock: Module, strategies: Iterable[Strategy]) -> Iterator[tuple[str, Module]]:
        """(name, module) of the strategies; equal modules only once, under the first strategy's name."""
        found: list[ModuleProto] = []
        for strategy in strategies:
            module = self.rewritten(stock, strategy)
            if module is not None and module.proto not in found:
                found.append(module.proto)
                yield strategy.name, module


def _follow_verdict(plans: Plans, verdict: Measurement | None) -> Plans:
    if verdict is not None and verdict.chosen == STOCK:
        for plan in plans:
            plan.refuse_dispatched(f"the whole program was {verdict.sentence()}", "slower", is_slower=True)
    return plans
