"""Matching and deciding as one value: what is looked for, who is asked, and how the answer is chosen.

A pass that decides otherwise (one call alone, measured) or that is watched (a profile) is the same pass with
another planner.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.ir.opcode import MAY_BE_ANCHORS
from hlo_dispatch.match.attention.finder import AttentionFinder
from hlo_dispatch.match.epilogue.finder import EpilogueFinder
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.match.routines.routine import RoutineFinder
from hlo_dispatch.match.structural.finder import StructuralFinder
from hlo_dispatch.passes.plan import ComputationPlan, plan_computation
from hlo_dispatch.passes.support_query import AskKernels, prefetch
from hlo_dispatch.pattern import Recogniser, Table
from hlo_dispatch.process.environment_switches import joins_calls
from hlo_dispatch.process.machine import Machine, this_machine
from hlo_dispatch.selection.candidate import Ask
from hlo_dispatch.selection.decide import Decision, Recall, check_policy, decide, expect


class Decide(Protocol):
    """Chooses for one match; `hlo_dispatch.selection.decide.decide` is one."""

    def __call__(self, match: CallableMatch, machine: Machine, policy: str, ask: Ask, recall: Recall) -> Decision: ...


@dataclass(frozen=True)
class Planner:
    """Plans computations with one table, one policy and one machine; safe to use from several threads."""

    table: Table
    policy: str
    machine: Machine
    finder: EpilogueFinder
    patterns: StructuralFinder
    routines: RoutineFinder
    attentions: AttentionFinder
    ask: Ask
    matcher: Callable[[FlatGraph, Table, EpilogueFinder], Matcher] = Matcher
    decide: Decide = decide
    prefetch: Callable[[CallableMatch], bool] = prefetch
    """Has the question about a match worked on meanwhile; False where there is nobody to ask."""

    @classmethod
    def make(cls, table: Table, policy: str, machine: Machine | None = None) -> Planner:
        """Raises PolicyError for an unknown policy."""
        return cls(
            table=table,
            policy=check_policy(policy),
            machine=machine or this_machine(),
            finder=EpilogueFinder(Recogniser(table.activations), table.binaries),
            patterns=StructuralFinder(table),
            routines=RoutineFinder(table),
            attentions=AttentionFinder(table),
            ask=AskKernels(table),
        )

    def may_match(self, opcodes: Set[str]) -> bool:
        """Whether a module of these opcodes can hold anything to match."""
        return not opcodes.isdisjoint(MAY_BE_ANCHORS | self.routines.opcodes) or self.patterns.may_match(opcodes)

    def plan(self, graph: FlatGraph, recall: Recall, *, small: bool, links: bool = True) -> ComputationPlan:
        """Match and decide everything in one computation.

        Args:
            recall: what is known of a match from measuring.
            small: the computation runs inside one of XLA's small calls, which hold no custom-calls.
            links: whether what lies between calls that can be one sequence is dispatched, too.
        """

        def decide_on(match: CallableMatch) -> Decision:
            return self.decide(match, self.machine, self.policy, self.ask, recall)

        matcher = self.matcher(graph, self.table, self.finder)
        return plan_computation(
            graph, matcher, self.patterns, self.routines, self.attentions, decide_on, small=small,
            prefetched=self._prefetched, between=self.ask if links and joins_calls() else None,
        )  # fmt: skip

    def _prefetched(self, match: CallableMatch) -> CallableMatch | None:
        """What will most likely be chosen, its kernel asked while the matching goes on; None: stock XLA."""
        chosen = expect(match, self.machine, self.policy)
        return chosen if chosen is not None and self.prefetch(chosen) else None
