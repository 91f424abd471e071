"""The pass: a serialized module in, a serialized module (or None: unchanged) and a report out.

Reads, matches, decides and plans the whole module; only then edits; verifies what it built. Pure: no JAX,
no global state besides caches of plans.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from hlo_dispatch.autotune.wanted import Measure, Wanted
from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import FlatGraph
from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.opcode import MAY_BE_ANCHORS
from hlo_dispatch.hlo.verify import verify
from hlo_dispatch.host.machine import Machine, this_machine
from hlo_dispatch.match.epilogue.finder import EpilogueFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.routines.routine import RoutineFinder, RoutineMatch
from hlo_dispatch.match.structural.finder import StructuralFinder
from hlo_dispatch.match.structural.structural_match import StructuralMatch
from hlo_dispatch.pattern import Recogniser, Table
from hlo_dispatch.policy.candidate import Candidate, Default
from hlo_dispatch.policy.decide import MEASURING, Decision, Recall, check_policy, decide, expect
from hlo_dispatch.policy.measured import Knowledge, Measured
from hlo_dispatch.report import Report
from hlo_dispatch.rewriting.asynchronous import keep_asynchronous
from hlo_dispatch.rewriting.backend_config import to_text
from hlo_dispatch.rewriting.deliberation import Deliberation
from hlo_dispatch.rewriting.edit import apply_plans
from hlo_dispatch.rewriting.plan import AnyMatch, ComputationPlan, plan_computation
from hlo_dispatch.rewriting.regions import regions_of
from hlo_dispatch.vendor import kernels, registry


@dataclass(frozen=True)
class Rewriter:
    """The pass with one table, one policy and one machine; safe to use from several threads."""

    table: Table
    policy: str
    machine: Machine
    finder: EpilogueFinder
    patterns: StructuralFinder
    routines: RoutineFinder
    knowledge: Knowledge = field(default_factory=Knowledge)
    """What was measured on this machine; asked by the policies "measure" and "stored"."""
    measuring: Callable[[str], Measure] | None = field(default=None, compare=False)
    """Makes, for each module (by name), something that measures what is not known yet; None: nothing is measured."""

    mode: str = ""
    """What becomes of what was measured (autotune/wanted.py); set while a program is tried."""

    @classmethod
    def make(cls, table: Table, policy: str, machine: Machine | None = None) -> Rewriter:
        """Raises PolicyError for an unknown policy."""
        finder = EpilogueFinder(Recogniser(table.activations), table.binaries)
        machine = machine or this_machine()
        return cls(table, check_policy(policy), machine, finder, StructuralFinder(table), RoutineFinder(table))

    def knowing(self, knowledge: Knowledge, measuring: Callable[[str], Measure] | None = None) -> Rewriter:
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
        if not _has_one_of(module, MAY_BE_ANCHORS | self.patterns.root_opcodes | self.routines.opcodes):
            return None, Report(module.name, (), clock.total(), clock.stages, _instructions(module), before=kept)
        instructions = _instructions(module)
        graphs = [(FlatGraph(module, c), small) for c, small in module.control_flow_computations()]
        clock.lap("flatten")
        if self.policy in MEASURING:
            plans, saved = self._deliberated(serialized, module, graphs)
            clock.lap("match, measure and decide")
        else:
            plans, saved = self._plans(graphs), None
            clock.lap("match and decide")
        result = None
        changed = apply_plans(module, plans, self.table, self.machine.threads)
        # What the regions came from is gone from the module by now, but not from the plans.
        regions = regions_of(module, plans, details=details)
        if changed:
            # A dump of a compiled module carries the order its instructions run in, which names some of those
            # that are gone; at XLA's hook there is none yet.
            module.proto.ClearField("schedule")
            changed |= keep_asynchronous(module, [c.match for plan in plans for c in plan.dispatched])
            clock.lap("edit")
            verify(module, changed)
            result = module.to_bytes()
            clock.lap("verify and serialize")
        for graph, _ in graphs:
            graph.take_apart()
        after = result if details else None
        return result, Report(module.name, regions, clock.total(), clock.stages, instructions, saved, kept, after)

    def _deliberated(
        self, serialized: bytes, module: Module, graphs: list[tuple[FlatGraph, bool]]
    ) -> tuple[list[ComputationPlan], float | None]:
        """The plans by what was measured, and by what is measured now; and how many seconds a run saves by them."""
        wanted = Wanted(module, self.table, self.knowledge, self.mode)
        if self.mode:
            return self._plans(graphs, wanted), None
        deliberation = Deliberation(
            serialized=serialized,
            wanted=wanted,
            knowledge=self.knowledge,
            measure=self.measuring(module.name) if self.measuring is not None else None,
            ask=self._ask,
            make_plans=lambda: self._plans(graphs, wanted),
            rewritten=lambda mode: replace(self, measuring=None, mode=mode).run(serialized)[0],
        )
        plans = deliberation.settle()
        return plans, deliberation.saved(plans)

    def _plans(self, graphs: list[tuple[FlatGraph, bool]], wanted: Wanted | None = None) -> list[ComputationPlan]:
        if wanted is not None:
            wanted.begin()
        return [self._plan(graph, small, wanted) for graph, small in graphs]

    def _plan(self, graph: FlatGraph, small: bool, wanted: Wanted | None = None) -> ComputationPlan:
        recall = wanted.recall_in(graph) if wanted is not None else _nothing_known

        def decide_on(match: AnyMatch) -> Decision:
            return self._decide(match, recall)

        return plan_computation(
            graph, self._matcher(graph), self.patterns, self.routines, decide_on, small=small, ahead=self._ask_ahead
        )

    def _decide(self, match: AnyMatch, recall: Recall) -> Decision:
        return decide(match, self.machine, self.policy, self._ask, recall)

    def _matcher(self, graph: FlatGraph) -> Matcher:
        return Matcher(graph, self.table, self.finder)

    def _ask_ahead(self, match: Match) -> Match | None:
        """Have the match's kernel asked while the matching goes on; returns what it will most likely be asked for."""
        library = kernels.library(match.anchor.kernel)
        chosen = expect(match, self.machine, self.policy) if library else None
        if chosen is not None and library:
            attributes, text = _question(chosen, library.version, {})
            kernels.ask_ahead(chosen.anchor.kernel, attributes, text)
        return chosen

    def _ask(self, match: AnyMatch, **more: str) -> Candidate | Refusal:
        """What the match's kernel says to the match as it stands; `more` attributes are asked for besides."""
        binding = self.table.kernels[match.anchor.kernel]
        if isinstance(match, StructuralMatch) and binding.path is not None:
            # A user's kernel takes what its table says it takes: there is nobody to ask.
            return Candidate(match, match.attributes(), f"{binding.path.name}:{binding.symbol}", match.scratch_bytes)
        library = kernels.library(match.anchor.kernel)
        if not library:
            return Refusal("library-missing", library.sentence)
        if isinstance(match, RoutineMatch):
            attributes = {"abi": registry.abi(), "library": library.version} | match.attributes()
            planned = kernels.plan(match.anchor.kernel, attributes)
            if isinstance(planned, Refusal):
                return planned
            return Candidate(match, attributes, planned.implementation, None)
        question, text = _question(match, library.version, more)
        planned = kernels.plan(match.anchor.kernel, question, text)
        if isinstance(planned, Refusal):
            return planned
        scratch = planned.scratch_bytes
        config = text.replace("scratch = 0 : i64", f"scratch = {scratch} : i64", 1)
        return Candidate(
            match, question | {"scratch": scratch}, planned.implementation, scratch, config, planned.reorders_weights
        )


def _question(match: Match | StructuralMatch, version: str, more: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The attributes of the match's call before it is known how much scratch memory it needs, also as text."""
    notes = match.notes if isinstance(match, Match) else {}
    # Asked ahead first, then again.
    if version not in notes or more:
        attributes = {"abi": registry.abi(), "library": version, "scratch": 0} | match.attributes() | dict(more)
        if more:
            return attributes, to_text(attributes)
        notes[version] = attributes, to_text(attributes)
    return notes[version]


def _nothing_known(match: AnyMatch, default: Default) -> Measured | None:
    return None


def _has_one_of(module: Module, opcodes: frozenset[str]) -> bool:
    return any(i.opcode in opcodes for c in module.proto.computations[:] for i in c.instructions[:])


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
