"""The pass: a serialized module in, a serialized module (or None: unchanged) and a report out.

Reads, matches, decides and plans the whole module; only then edits; verifies what it built. Pure: no JAX (unless
it is to prepare constants), no global state besides caches of plans.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hlo_dispatch.analysis.binding_time import mark_early
from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.autotune.measurement_requests import ModuleTuner, Wanted
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.passes.async_padding import keep_asynchronous
from hlo_dispatch.passes.call_groups.grouping import Joined, join
from hlo_dispatch.passes.edit import apply_plans
from hlo_dispatch.passes.huge_page_advice import advise_huge_pages
from hlo_dispatch.passes.partition.constant_weights import Weights, has_weights, weights_of
from hlo_dispatch.passes.partition.splitter import splitter
from hlo_dispatch.passes.plan import ComputationPlan
from hlo_dispatch.passes.planner import Planner
from hlo_dispatch.passes.program_tuner import Deliberation
from hlo_dispatch.passes.region_reports import regions_of
from hlo_dispatch.passes.stride_propagation.propagate import thin
from hlo_dispatch.pattern import Table
from hlo_dispatch.process.environment_switches import is_strict
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.report import Report, Thinned
from hlo_dispatch.selection.candidate import Default
from hlo_dispatch.selection.decide import MEASURING
from hlo_dispatch.selection.measurements import ALL_IN_KERNELS, Knowledge, Measured


@dataclass(frozen=True)
class Rewriter:
    """The pass with one planner; safe to use from several threads."""

    planner: Planner
    knowledge: Knowledge = field(default_factory=Knowledge)
    """What was measured on this machine; asked by the policies "measure" and "stored"."""
    measuring: Callable[[str], ModuleTuner] | None = field(default=None, compare=False)
    """Makes, for each module (by name), something that measures what is not known yet; None: nothing is measured."""

    frozen: frozenset[int] = frozenset()
    """Numbers of the entry's parameters that are known before it is called; whatever depends on nothing else costs
    nothing in a call."""
    prepares: bool = False
    """Whether a module's own large constants are known before, too: what depends on them alone is computed while the
    module is rewritten, which needs jax."""
    advises: bool = True
    """Whether large buffers are advised for huge pages; not where one call is compared with stock's code for it."""
    mode: str = ""
    """What becomes of what was measured (autotune/measurement_requests.py); set while a program is tried."""

    @classmethod
    def make(cls, table: Table, policy: str, machine: Machine | None = None) -> Rewriter:
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

    def knowing(self, knowledge: Knowledge, measuring: Callable[[str], ModuleTuner] | None = None) -> Rewriter:
        """The same pass with what was measured, and with something that measures the rest."""
        return replace(self, knowledge=knowledge, measuring=measuring)

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
            return self._run(serialized, details)

    def _run(self, serialized: bytes, details: bool) -> tuple[bytes | None, Report]:
        clock = _Clock()
        kept = serialized if details else None
        module = Module.from_bytes(serialized)
        clock.lap("parse")
        if not self.planner.may_match({i.opcode for c in module.proto.computations[:] for i in c.instructions[:]}):
            return None, Report(module.name, (), clock.total(), clock.stages, _instructions(module), before=kept)
        if self.prepares and has_weights(module) and (weights := weights_of(module)) is not None:
            return self._with_weights(weights, kept, clock)
        instructions = _instructions(module)
        graphs = [(FlatGraph(module, c), small) for c, small in module.control_flow_computations()]
        if self.frozen:
            mark_early(module, {graph.computation.id: graph for graph, _ in graphs}, self.frozen)
        clock.lap("flatten")
        if self.policy in MEASURING:
            plans, saved = self._deliberated(serialized, module, graphs)
            clock.lap("match, measure and decide")
        else:
            plans, saved = self._plans(graphs), None
            clock.lap("match and decide")
        result, sequences, thinned = None, Joined(), dict[str, Thinned]()
        changed = apply_plans(module, plans, self.table, self.machine.threads)
        if changed:
            # A dump of a compiled module carries the order its instructions run in, which names some of those
            # that are gone; at XLA's hook there is none yet.
            module.proto.ClearField("schedule")
            smaller, thinned = thin(module)
            changed |= smaller
            if not self.frozen:
                # Weights of what is frozen are packed first (passes/partition/), by the calls themselves.
                sequences = join(module)
                changed |= sequences.computations
            changed |= keep_asynchronous(module, [c.match for plan in plans for c in plan.dispatched])
            if not self.frozen:
                if self.advises:
                    changed |= advise_huge_pages(module)
            clock.lap("edit")
            verify(module, changed)
            result = module.to_bytes()
            clock.lap("verify and serialize")
        # What the regions came from is gone from the module by now, but not from the plans.
        regions = regions_of(module, plans, details=details)
        for graph, _ in graphs:
            graph.take_apart()
        after = result if details else None
        stages, total = clock.stages, clock.total()
        report = Report(module.name, regions, total, stages, instructions, saved, before=kept, after=after)
        return result, report.thinned(thinned).joined(sequences.sequences, sequences.calls)

    def _with_weights(self, weights: Weights, kept: bytes | None, clock: _Clock) -> tuple[bytes | None, Report]:
        """The same of a module whose large constants were taken out."""
        clock.lap("take out constants")
        inner = replace(self, prepares=False, frozen=weights.frozen)
        if (measuring := self.measuring) is not None:

            def given(module: str) -> ModuleTuner:
                return measuring(module).given(weights.frozen)

            inner = replace(inner, measuring=given)
        result, report = inner._run(weights.module, kept is not None)
        failure = ""
        clock.lap("rewrite")
        if result is not None:
            result, failure = self._prepared(weights, result)
            clock.lap("prepare constants")
        clock.stages.pop("rewrite", None)
        stages = clock.stages | report.stages
        after = result if kept is not None else None
        return result, replace(report, seconds=clock.total(), stages=stages, failure=failure, before=kept, after=after)

    def _prepared(self, weights: Weights, dispatched: bytes) -> tuple[bytes, str]:
        """The module with all that is made of its constants; or, where that fails, with themselves, and what failed."""
        try:
            return weights.prepared(dispatched, splitter(self.table, self.machine.threads), self.table), ""
        except Exception as error:
            if is_strict():
                raise
            because = f"constants could not be prepared, which each call does now ({type(error).__name__}: {error})"
            return weights.put_back(dispatched), because

    def _deliberated(
        self, serialized: bytes, module: Module, graphs: list[tuple[FlatGraph, bool]]
    ) -> tuple[list[ComputationPlan], float | None]:
        """The plans by what was measured, and by what is measured now; and how many seconds a run saves by them."""
        wanted = Wanted(module, self.table, self.knowledge, self.mode, self.frozen)
        if self.mode:
            return self._plans(graphs, wanted), None
        deliberation = Deliberation(
            serialized=serialized,
            wanted=wanted,
            knowledge=self.knowledge,
            measure=self.measuring(module.name) if self.measuring is not None else None,
            ask=self.planner.ask,
            make_plans=lambda: self._plans(graphs, wanted),
            rewritten=lambda mode: replace(self, measuring=None, mode=mode).run(serialized)[0],
        )
        plans = deliberation.settle()
        return plans, deliberation.saved(plans)

    def _plans(self, graphs: list[tuple[FlatGraph, bool]], wanted: Wanted | None = None) -> list[ComputationPlan]:
        if wanted is None:
            links = self.policy == "always"
            return [self.planner.plan(graph, _nothing_known, small=small, links=links) for graph, small in graphs]
        wanted.begin()
        # What lies between calls wins nothing alone: it is for the program as a whole to show that it gains.
        links = wanted.mode in ALL_IN_KERNELS
        return [self.planner.plan(graph, wanted.recall_in(graph), small=small, links=links) for graph, small in graphs]


def _nothing_known(match: CallableMatch, default: Default) -> Measured | None:
    return None


def _instructions(module: Module) -> int:
    return sum(len(computation.instructions) for computation in module.proto.computations[:])


@contextmanager
def _collector_paused() -> Generator[None]:
    """Keep Python's cycle collector from walking the growing graph again and again: half the time on large modules.

    Two threads may meet here: whoever found the collector on turns it on again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[stage] = now - self._last
        self._last = now

    def total(self) -> float:
        return time.perf_counter() - self._start
