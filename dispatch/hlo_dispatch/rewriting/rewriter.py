"""The pass: a serialized module in, a serialized module (or None: unchanged) and a report out.

Reads, matches, decides and plans the whole module; only then edits; verifies what it built. Pure: no JAX,
no global state besides caches of plans.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hlo_dispatch import kernels
from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import FlatGraph
from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.opcode import ANCHORS
from hlo_dispatch.hlo.verify import verify
from hlo_dispatch.libraries import onednn
from hlo_dispatch.match.epilogue import EpilogueFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.structural import StructuralFinder
from hlo_dispatch.match.structural_match import StructuralMatch
from hlo_dispatch.pattern import Recogniser, Table
from hlo_dispatch.policy.decide import Candidate, check_policy, expect
from hlo_dispatch.policy.machine import Machine, this_machine
from hlo_dispatch.report import Report
from hlo_dispatch.rewriting.backend_config import to_text
from hlo_dispatch.rewriting.edit import apply_plans
from hlo_dispatch.rewriting.plan import ComputationPlan, plan_computation
from hlo_dispatch.rewriting.regions import regions_of

_MAY_BE_ANCHORS = ANCHORS | {"reduce-window"}


@dataclass(frozen=True)
class Rewriter:
    """The pass with one table, one policy and one machine; safe to use from several threads."""

    table: Table
    policy: str
    machine: Machine
    finder: EpilogueFinder
    patterns: StructuralFinder

    @classmethod
    def make(cls, table: Table, policy: str, machine: Machine | None = None) -> Rewriter:
        """Raises PolicyError for an unknown policy."""
        finder = EpilogueFinder(Recogniser(table.activations), table.binaries)
        return cls(table, check_policy(policy), machine or this_machine(), finder, StructuralFinder(table))

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
        if not _has_one_of(module, _MAY_BE_ANCHORS | self.patterns.root_opcodes):
            return None, Report(module.name, (), clock.total(), clock.stages, _instructions(module), kept)
        instructions = _instructions(module)
        graphs = [(FlatGraph(module, c), small) for c, small in module.control_flow_computations()]
        clock.lap("flatten")
        plans = [self._plan(graph, small) for graph, small in graphs]
        clock.lap("match and decide")
        result = None
        changed = apply_plans(module, plans, self.table, self.machine.threads)
        # What the regions came from is gone from the module by now, but not from the plans.
        regions = regions_of(module, plans, details=details)
        if changed:
            # A dump of a compiled module carries the order its instructions run in, which names some of those
            # that are gone; at XLA's hook there is none yet.
            module.proto.ClearField("schedule")
            clock.lap("edit")
            verify(module, changed)
            result = module.to_bytes()
            clock.lap("verify and serialize")
        after = result if details else None
        return result, Report(module.name, regions, clock.total(), clock.stages, instructions, kept, after)

    def _plan(self, graph: FlatGraph, small: bool) -> ComputationPlan:
        matcher = self._matcher(graph)
        return plan_computation(
            graph, matcher, self.patterns, self.machine, self.policy, self._ask, small=small, ahead=self._ask_ahead
        )

    def _matcher(self, graph: FlatGraph) -> Matcher:
        return Matcher(graph, self.table, self.finder)

    def _ask_ahead(self, match: Match) -> Match | None:
        """Have the match's kernel asked while the matching goes on; returns what it will most likely be asked for."""
        library = onednn()
        chosen = expect(match, self.machine, self.policy) if library else None
        if chosen is not None:
            attributes, text = _question(chosen, library.version)
            kernels.ask_ahead(chosen.anchor.kernel, attributes, text)
        return chosen

    def _ask(self, match: Match | StructuralMatch) -> Candidate | Refusal:
        """What the match's kernel says to the match as it stands."""
        binding = self.table.kernels[match.anchor.kernel]
        if isinstance(match, StructuralMatch) and binding.path is not None:
            # A user's kernel takes what its table says it takes: there is nobody to ask.
            return Candidate(match, match.attributes(), f"{binding.path.name}:{binding.symbol}", match.scratch_bytes)
        library = onednn()
        if not library:
            return Refusal("library-missing", library.sentence)
        question, text = _question(match, library.version)
        planned = kernels.plan(match.anchor.kernel, question, text)
        if isinstance(planned, Refusal):
            return planned
        attributes = question | {"scratch": planned.scratch_bytes}
        config = text.replace("scratch = 0 : i64", f"scratch = {planned.scratch_bytes} : i64", 1)
        return Candidate(match, attributes, planned.implementation, planned.scratch_bytes, config)


def _question(match: Match | StructuralMatch, version: str) -> tuple[dict, str]:
    """The attributes of the match's call before it is known how much scratch memory it needs, also as text."""
    notes = match.notes if isinstance(match, Match) else {}
    # Asked ahead first, then again.
    if version not in notes:
        attributes = {"abi": kernels.ABI, "library": version, "scratch": 0} | match.attributes()
        notes[version] = attributes, to_text(attributes)
    return notes[version]


def _has_one_of(module: Module, opcodes: frozenset[str]) -> bool:
    return any(i.opcode in opcodes for c in module.proto.computations[:] for i in c.instructions[:])


def _instructions(module: Module) -> int:
    return sum(len(computation.instructions) for computation in module.proto.computations[:])


@contextmanager
def _collector_paused() -> Iterator[None]:
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
