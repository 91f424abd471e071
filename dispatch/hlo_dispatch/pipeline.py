"""The pass pipeline: a serialized module in, a serialized module (or None: unchanged) and a report out.

It matches, decides and plans the whole module before the first edit, and verifies the result. Pure: no JAX (except to
preprocess constants), no global state besides caches of plans.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hlo_dispatch.analysis.binding_time import static_by_computation
from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.autotune.measurement_requests import MeasurementRequests, ModuleMeasurer
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.match.match import Match
from hlo_dispatch.passes.async_padding import insert_async_padding
from hlo_dispatch.passes.call_groups.grouping import CallGroups, group_calls
from hlo_dispatch.passes.dispatch import apply_plans
from hlo_dispatch.passes.huge_page_advice import advise_huge_pages
from hlo_dispatch.passes.partition.constant_weights import (
    ConstantWeights,
    extract_constant_weights,
    has_constant_weights,
)
from hlo_dispatch.passes.partition.splitter import splitter
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.passes.planner import Planner
from hlo_dispatch.passes.program_tuner import ProgramTuner
from hlo_dispatch.passes.region_reports import regions_of
from hlo_dispatch.passes.small_calls import undo_small_calls
from hlo_dispatch.passes.stride_propagation.propagate import propagate_strides
from hlo_dispatch.pattern import Table
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.report import Report, StridedCall
from hlo_dispatch.selection.candidate import DefaultVariant
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.selection.measurements import KnownMeasurements, Measurement
from hlo_dispatch.selection.strategies import ALL_SUPPORTED_UNCONDITIONALLY, COST_MODEL, Strategy


@dataclass(frozen=True)
class Pipeline:
    """The pass pipeline with one planner; safe to use from several threads."""

    planner: Planner
    knowledge: KnownMeasurements = field(default_factory=KnownMeasurements)
    """Measurements of this machine, for the policies "measure" and "stored"."""
    make_measurer: Callable[[str], ModuleMeasurer] | None = field(default=None, compare=False)
    """Makes the measurer of a module, by its name; None: nothing is measured."""

    frozen: frozenset[int] = frozenset()
    """Numbers of the entry's frozen parameters; values that depend on these alone are static and cost nothing in a
    call."""
    preprocesses_constants: bool = False
    """Whether large constants count as frozen weights, preprocessed while the module is rewritten; needs jax."""
    advises_huge_pages: bool = True
    """Whether to insert huge-page advice; not where one call is compared with stock's code for it."""
    strategy: Strategy | None = None
    """The plan strategy; set in a whole-program trial."""

    @classmethod
    def make(cls, table: Table, policy: str, machine: Machine | None = None) -> Pipeline:
        """Raises PolicyError for an unknown policy."""
        return cls(Planner.make(table, policy, machine))

    @property
    def table(self) -> Table:
        return self.planner.table

    @property
    def policy(self) -> str:
        return self.planner.policy

    @property
    def machine(self) -> Machine:
        return self.planner.machine

    def with_knowledge(
        self, knowledge: KnownMeasurements, make_measurer: Callable[[str], ModuleMeasurer] | None = None
    ) -> Pipeline:
        """The same pipeline with measurements, and with a measurer of the rest."""
        return replace(self, knowledge=knowledge, make_measurer=make_measurer)

    def run(self, serialized: bytes, *, details: bool = False) -> tuple[bytes | None, Report]:
        """Rewrite one serialized HloModuleProto.

        Args:
            details: look for the nearest miss of every epilogue (slow), and keep both modules in the report.

        Returns:
            the new module's bytes, or None where nothing was dispatched, and the report of every anchor.

        Raises:
            ModuleError: the bytes are not a module.
        """
        with _collector_paused():
            clock = _Clock()
            module = Module.from_bytes(serialized)
            clock.lap("parse")
            rewritten, report = self._rewritten(module, clock, serialized if details else None)
            result = rewritten.to_bytes() if rewritten is not None else None
            clock.lap("serialize")
        after = result if details else None
        return result, replace(report, seconds=clock.total(), stages=clock.stages, after=after)

    def rewrite(self, module: Module) -> tuple[Module | None, Report]:
        """Rewrite one module in place, where anything is dispatched.

        Returns:
            the module, or None where nothing was dispatched, and the report of every anchor.
        """
        with _collector_paused():
            return self._rewritten(module, _Clock())

    def _rewritten(self, module: Module, clock: _Clock, original: bytes | None = None) -> tuple[Module | None, Report]:
        details = original is not None
        if not self.planner.may_match({i.opcode for c in module.proto.computations[:] for i in c.instructions[:]}):
            return None, Report(module.name, (), clock.total(), clock.stages, module.instruction_count, before=original)
        if (
            self.preprocesses_constants
            and has_constant_weights(module)
            and (weights := extract_constant_weights(module)) is not None
        ):
            return self._with_constant_weights(weights, original, clock)
        instructions = module.instruction_count
        graphs = self._flattened(module)
        clock.lap("flatten")
        if self.policy in MEASURING:
            plans, saved = self._tuned(module, graphs)
            clock.lap("match, measure and decide")
        else:
            strategy = ALL_SUPPORTED_UNCONDITIONALLY if self.policy == "always" else COST_MODEL
            plans, saved = self._plans(graphs, strategy), None
            clock.lap("match and decide")
        result, call_groups, strided_calls = None, CallGroups(), dict[str, StridedCall]()
        changed = apply_plans(module, plans, self.table, self.machine.threads)
        changed |= undo_small_calls(module, changed)
        if changed:
            # The schedule of a dumped compiled module names instructions that were removed; at XLA's hook there
            # is none yet.
            module.proto.ClearField("schedule")
            strided, strided_calls = propagate_strides(module)
            changed |= strided
            if not self.frozen:
                # With frozen weights, grouping runs after prepacking, in the splitter (passes/partition/).
                call_groups = group_calls(module)
                changed |= call_groups.computations
            changed |= insert_async_padding(module, [c.match for plan in plans for c in plan.dispatched])
            if not self.frozen:
                if self.advises_huge_pages:
                    changed |= advise_huge_pages(module)
            clock.lap("edit")
            verify(module, changed)
            result = module
            clock.lap("verify")
        # The module no longer has the matched instructions, the plans do.
        regions = regions_of(module, plans, details=details)
        for graph, _ in graphs:
            graph.break_reference_cycles()
        report = Report(module.name, regions, clock.total(), clock.stages, instructions, saved, before=original)
        return result, report.with_strided_calls(strided_calls).with_call_groups(
            call_groups.sequences, call_groups.calls
        )

    def _flattened(self, module: Module) -> list[tuple[FlatGraph, bool]]:
        """The flat graphs of the module's computations, and whether XLA runs each as one small call."""
        graphs = [(FlatGraph(module, c), small) for c, small in module.control_flow_computations()]
        if self.frozen:
            by_id = {graph.computation.id: graph for graph, _ in graphs}
            for identifier, static in static_by_computation(module, by_id, self.frozen).items():
                by_id[identifier].static = static
        return graphs

    def _with_constant_weights(
        self, weights: ConstantWeights, original: bytes | None, clock: _Clock
    ) -> tuple[Module | None, Report]:
        """Rewrite a module with its large constants extracted."""
        clock.lap("take out constants")
        inner = replace(self, preprocesses_constants=False, frozen=weights.frozen)
        if (make_measurer := self.make_measurer) is not None:

            def with_frozen(module: str) -> ModuleMeasurer:
                return make_measurer(module).with_frozen(weights.frozen)

            inner = replace(inner, make_measurer=with_frozen)
        result, report = inner._rewritten(Module.from_bytes(weights.module), clock, original)
        failure = ""
        if result is not None:
            serialized, failure = self._with_preprocessed_constants(weights, result.to_bytes())
            result = Module.from_bytes(serialized)
            clock.lap("prepare constants")
        return result, replace(report, failure=failure)

    def _with_preprocessed_constants(self, weights: ConstantWeights, dispatched: bytes) -> tuple[bytes, str]:
        """(module with preprocessed constants, ""), or (module with the original constants, failure)."""
        try:
            return weights.with_preprocessed_constants(
                dispatched, splitter(self.table, self.machine.threads), self.table
            ), ""
        except Exception as error:
            if is_strict():
                raise
            because = f"constants could not be preprocessed; each call does it now ({type(error).__name__}: {error})"
            return weights.with_original_constants(dispatched), because

    def _tuned(
        self, module: Module, graphs: list[tuple[FlatGraph, bool]]
    ) -> tuple[list[ComputationPlan], float | None]:
        """The plans by stored and new measurements, and the seconds that a run saves by them."""
        requests = MeasurementRequests(module, self.table, self.knowledge, self.frozen)
        if self.strategy is not None:
            return self._plans(graphs, self.strategy, requests), None
        tuner = ProgramTuner(
            module=module,
            requests=requests,
            knowledge=self.knowledge,
            measure=self.make_measurer(module.name) if self.make_measurer is not None else None,
            support_query=self.planner.support_query,
            plan=lambda strategy: self._plans(graphs, strategy, requests),
            rewritten=lambda strategy: replace(self, make_measurer=None, strategy=strategy).rewrite(module.copy())[0],
        )
        plans = tuner.choose_plans()
        return plans, tuner.saved(plans)

    def _plans(
        self, graphs: list[tuple[FlatGraph, bool]], strategy: Strategy, requests: MeasurementRequests | None = None
    ) -> list[ComputationPlan]:
        """The plans of one strategy; without `requests` nothing is known."""
        if requests is not None:
            requests.begin(strategy)
        plans: list[ComputationPlan] = []
        for graph, small in graphs:
            lookup = _no_measurement if requests is None else requests.lookup_in(graph)
            plans.append(self.planner.plan(graph, lookup, strategy, small=small))
        return plans


def _no_measurement(match: Match, default: DefaultVariant) -> Measurement | None:
    return None


@contextmanager
def _collector_paused() -> Generator[None]:
    """Pause Python's cycle collector, which traverses the growing graph repeatedly: half the time on large modules.

    With several threads, the one that found the collector enabled enables it again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Clock:
    """Timer: seconds by stage."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[stage] = now - self._last
        self._last = now

    def total(self) -> float:
        return time.perf_counter() - self._start
