"""Planner: matcher, kernel support query and decision of the pipeline as one value.

A pipeline that decides differently (for one measured call) or that counts (a profile) is the same pipeline with another
planner.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.attention.finder import AttentionFinder
from hlo_dispatch.match.elementwise.finder import SLOW_OPCODES, ElementwiseFinder
from hlo_dispatch.match.epilogue.finder import EpilogueFinder
from hlo_dispatch.match.group_norm import GroupNormFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.recurrent.finder import RecurrentFinder
from hlo_dispatch.match.routines.routine import RoutineFinder
from hlo_dispatch.match.structural.finder import StructuralFinder
from hlo_dispatch.passes.plan import ComputationPlan, plan_computation
from hlo_dispatch.passes.support_query import VendorSupportQuery, prefetch
from hlo_dispatch.pattern import Recogniser, Table
from hlo_dispatch.pattern.op_kinds import MAY_BE_ANCHORS
from hlo_dispatch.process.environment_switches import groups_calls
from hlo_dispatch.process.machine import Machine, this_machine
from hlo_dispatch.selection.candidate import KernelSupportQuery
from hlo_dispatch.selection.decide import (
    Decision,
    MeasurementLookup,
    check_policy,
    decide,
    is_likely_dispatched,
    preferred_variant,
)
from hlo_dispatch.selection.strategies import ALL_SUPPORTED_UNCONDITIONALLY, Strategy


class Decide(Protocol):
    """Decides on one match; `hlo_dispatch.selection.decide.decide` implements it."""

    def __call__(
        self,
        match: Match,
        machine: Machine,
        policy: str,
        support_query: KernelSupportQuery,
        lookup: MeasurementLookup,
    ) -> Decision: ...


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
    recurrents: RecurrentFinder
    group_norms: GroupNormFinder
    elementwise: ElementwiseFinder
    support_query: KernelSupportQuery
    matcher: Callable[[FlatGraph, Table, EpilogueFinder, Machine], Matcher] = Matcher
    decide: Decide = decide
    prefetch: Callable[[Match], bool] = prefetch
    """Starts the kernel support query of a match in the background; False where the library is missing."""

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
            recurrents=RecurrentFinder(table),
            group_norms=GroupNormFinder(table),
            elementwise=ElementwiseFinder(table),
            support_query=VendorSupportQuery(table),
        )

    def may_match(self, opcodes: Set[str], *, is_small: bool = False) -> bool:
        """Whether a module of these opcodes can contain a match.

        Args:
            is_small: none of its arrays has many elements.
        """
        starting = MAY_BE_ANCHORS | self.routines.opcodes | self.elementwise.opcodes
        if is_small:  # a loop is a routine over many elements, or nothing but its body; as a gather of rows is
            starting = MAY_BE_ANCHORS | (self.routines.opcodes - {"gather", "while"}) | SLOW_OPCODES
        return not opcodes.isdisjoint(starting) or self.patterns.may_match(opcodes)

    def plan(
        self,
        graph: FlatGraph,
        lookup: MeasurementLookup,
        strategy: Strategy = ALL_SUPPORTED_UNCONDITIONALLY,
        *,
        small: bool = False,
    ) -> ComputationPlan:
        """Match and decide every pattern and anchor of one computation.

        Args:
            lookup: looks up the measurement of a match.
            small: the computation runs inside one of XLA's small calls, which a kernel call in it undoes.
        """

        def is_refused(match: Match) -> bool:
            return small and not strategy.undoes_small_call(match)

        def decide_on(match: Match) -> Decision:
            if is_refused(match):
                refusal = Refusal("small-call", "XLA runs this computation as one small call", match.node.name)
                return Decision(None, refusal.sentence, refusal)
            return self.decide(match, self.machine, self.policy, self.support_query, lookup)

        def prefetched(match: Match) -> Match | None:
            return None if is_refused(match) else self._prefetched(match, strategy)

        matcher = self.matcher(graph, self.table, self.finder, self.machine)
        return plan_computation(
            graph, matcher, self.patterns, self.routines, self.attentions, self.recurrents, self.group_norms,
            self.elementwise,
            decide_on,
            prefetched=prefetched,
            query_glue_support=self.support_query if strategy.dispatches_all and groups_calls() else None,
        )  # fmt: skip

    def _prefetched(self, match: Match, strategy: Strategy) -> Match | None:
        """The variant that will most likely be chosen, after starting its support query; None: stock XLA."""
        if self.policy == "never":
            return None
        preferred = preferred_variant(match, self.machine)
        is_likely = self.prefetch(preferred) and (
            strategy.dispatches_all or is_likely_dispatched(match, self.machine, self.policy)
        )
        return preferred if is_likely else None
