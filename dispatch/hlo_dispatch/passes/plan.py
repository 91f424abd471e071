"""Plan of one computation: matches every pattern and anchor and decides on it, before any edit.

Of two overlapping matches, the one that covers more instructions wins. The order is therefore: attention, which covers
two products and a softmax; patterns that cover at least as much as every anchor's match they overlap; anchors; the
outweighed patterns whose instructions no other match owns; elementwise regions that no other match owns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.attention.finder import AttentionFinder
from hlo_dispatch.match.elementwise.finder import ElementwiseFinder
from hlo_dispatch.match.group_norm import GroupNormFinder
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.recurrent.finder import RecurrentFinder
from hlo_dispatch.match.routines.routine import RoutineFinder
from hlo_dispatch.match.structural.finder import StructuralFinder, StructuralMatches
from hlo_dispatch.match.structural.nearest_miss import NearestMiss
from hlo_dispatch.passes.glue_ops import REASON, find_glue_ops
from hlo_dispatch.passes.ownership import InstructionOwnership, RecordedMembership
from hlo_dispatch.pattern.table import Attention
from hlo_dispatch.selection.candidate import Candidate, KernelSupportQuery
from hlo_dispatch.selection.decide import Decision
from hlo_dispatch.selection.family_cost_models import cost_model_of

# Refusal codes of regions that a kernel supports and for which a separate call would not pay.
_NOT_WORTH_A_CALL = ("policy", "slower")

_LOOPS = frozenset(("call", "while"))

Decided = tuple[Match | None, Decision]
"""A match, if there is one, and the decision on it."""


@dataclass
class ComputationPlan:
    """The decisions on one computation."""

    graph: FlatGraph
    decisions: dict[Node, Decided] = field(default_factory=dict[Node, Decided])
    """Anchor, or a pattern's result → its match (None if the anchor has no normal form) and the decision."""
    misses: list[NearestMiss] = field(default_factory=list[NearestMiss])
    """Nearest misses of the patterns without a match."""
    calls: dict[Node, str] = field(default_factory=dict[Node, str])
    """Dispatched anchor, or a pattern's result → name of its custom-call, set when the module is edited."""

    def refuse_dispatched(self, problem: str, code: str = "rewrite-unsupported", *, is_slower: bool = False) -> None:
        """Refuse all dispatched matches; where they are only slower, except for those whose kernel is needed."""
        for node, (match, decision) in self.decisions.items():
            if decision.candidate is not None and not (is_slower and decision.is_required):
                refusal = Refusal(code, problem, node.name)
                self.decisions[node] = match, Decision(None, problem, refusal)

    @property
    def dispatched(self) -> list[Candidate]:
        return [decision.candidate for _, decision in self.decisions.values() if decision.candidate is not None]

    @property
    def replaced_computations(self) -> set[int]:
        """Ids of the computations of loops that kernel calls replace."""
        loops = [candidate.match.node for candidate in self.dispatched if candidate.match.node.opcode in _LOOPS]
        pending = [called for loop in loops for called in loop.proto.called_computation_ids[:]]
        found: set[int] = set()
        while pending:
            found.add(identifier := pending.pop())
            for instruction in self.graph.module.computations[identifier].instructions[:]:
                pending += instruction.called_computation_ids[:]
        return found


def plan_computation(
    graph: FlatGraph,
    matcher: Matcher,
    patterns: StructuralFinder,
    routines: RoutineFinder,
    attentions: AttentionFinder,
    recurrents: RecurrentFinder,
    group_norms: GroupNormFinder,
    elementwise: ElementwiseFinder,
    decide_on: Callable[[Match], Decision],
    *,
    prefetched: Callable[[Match], Match | None] | None = None,
    query_glue_support: KernelSupportQuery | None = None,
) -> ComputationPlan:
    """Match and decide every pattern and anchor of `graph`.

    Args:
        decide_on: decides on a match.
        prefetched: starts the kernel support query for a match in the background; returns the variant that will most
            likely be chosen, or None. Without it every query blocks.
        query_glue_support: the kernel support query for glue ops; None: no glue ops are dispatched.
    """
    planner = _Planner(graph, matcher, decide_on, prefetched)
    found = patterns.find(graph) if patterns else StructuralMatches()
    planner.plan_routines(recurrents.find(graph))
    planner.plan_routines(routines.find(graph))
    planner.plan_routines(group_norms.find(graph))
    attention_nodes = planner.plan_attentions(attentions.find(graph))
    planner.plan.misses = list(found.misses.values())
    # A softmax inside an attention is not outranked but part of it.
    outweighed = planner.plan_patterns([match for match in found.matches if not set(match.covered) <= attention_nodes])
    planner.plan_anchors()
    planner.plan_unconflicted(outweighed)
    planner.plan_elementwise(elementwise)
    if query_glue_support is not None:
        planner.plan_glue_ops(query_glue_support)
    return planner.plan


@dataclass
class _ExpectedMatch:
    """An anchor's match under the assumption that earlier decisions are as expected."""

    match: Match | Refusal
    chosen: Match | None = None
    """The variant that is expected to be chosen; None: stock."""
    asked: AbstractSet[Node] = frozenset()
    """Instructions on whose ownership the match depends."""


class _Planner:
    def __init__(
        self,
        graph: FlatGraph,
        matcher: Matcher,
        decide_on: Callable[[Match], Decision],
        prefetched: Callable[[Match], Match | None] | None,
    ) -> None:
        self.plan = ComputationPlan(graph)
        self._matcher, self._decide_on, self._prefetched = matcher, decide_on, prefetched
        self._ownership = InstructionOwnership(graph.root)
        self._results: frozenset[Node] = frozenset()
        """Results of attentions, in front of which values may not exist."""

    def plan_routines(self, found: Iterable[tuple[Node, Match | Refusal]]) -> None:
        """Decide on library calls, which no other match covers, and on products that may become anchors afterwards."""
        for node, match in found:
            if isinstance(match, Refusal):
                self._refuse(node, match)
            elif (operand := self._ownership.unmaterialized_operand(match)) is not None:
                sentence = f"it reads %{operand.name}, which another kernel computes past"
                self._refuse(node, Refusal("outranked", sentence, node.name))
            else:
                self._decide(node, match)

    def plan_attentions(self, found: Iterable[tuple[Node, Match | Refusal]]) -> AbstractSet[Node]:
        """Decide on attention matches, past whose results no later match peels; returns the nodes that they cover."""
        before = set(self._ownership.owned)
        self.plan_routines(found)
        attentions = [c.match for c in self.plan.dispatched if isinstance(c.match.entry, Attention)]
        self._results = frozenset(match.output for match in attentions)
        return self._ownership.owned - before

    def plan_patterns(self, matches: Sequence[Match]) -> Sequence[Match]:
        """Decide on the patterns' matches; returns those that an anchor's match outweighs."""
        competing_sizes = self._competing_match_sizes(matches)
        outweighed = {match for match in matches if _is_outweighed(match, competing_sizes)}
        self.plan_unconflicted([match for match in matches if match not in outweighed])
        return [match for match in matches if match in outweighed]

    def plan_anchors(self) -> None:
        """Decide on every anchor that no pattern owns."""
        expected = self._match_ahead()
        unexpected: set[Node] = set()
        """Instructions whose ownership is another one than expected."""
        for node in self._matcher.anchors():
            ahead = expected.get(node)
            is_owned = node in self._ownership.owned
            match = ahead.match if ahead is not None and unexpected.isdisjoint(ahead.asked) else None
            chosen = None if is_owned else self._plan_anchor(node, self._match(node) if match is None else match)
            anticipated = None if ahead is None else ahead.chosen
            if not _is_same(chosen, anticipated):
                for differing in (chosen, anticipated):
                    if differing is not None:
                        unexpected.update(differing.covered, differing.reads)

    def _plan_anchor(self, node: Node, match: Match | Refusal) -> Match | None:
        """Decide on an anchor; returns the variant that is dispatched, if any."""
        if isinstance(match, Refusal):
            if node not in self.plan.decisions:  # else it was decided as a library routine
                self._refuse(node, match)
            return None
        if (operand := self._ownership.unmaterialized_operand(match)) is not None:
            sentence = f"it reads %{operand.name}, which a pattern's kernel computes past"
            self._refuse(node, Refusal("outranked", sentence, node.name))
            return None
        candidate = self._decide(node, match).candidate
        return None if candidate is None else candidate.match

    def _match_ahead(self) -> dict[Node, _ExpectedMatch]:
        """Match every anchor under the most likely decisions and prefetch the kernel support queries."""
        found: dict[Node, _ExpectedMatch] = {}
        if self._prefetched is None:
            return found
        decided_ownership, self._ownership = self._ownership, self._ownership.copy()
        for node in self._matcher.anchors():
            if node not in self._ownership.owned:
                match, asked = self._match_and_asked(node)
                chosen = (
                    None
                    if isinstance(match, Refusal) or self._ownership.unmaterialized_operand(match)
                    else self._prefetched(match)
                )
                found[node] = _ExpectedMatch(match, chosen, asked)
                if chosen is not None:
                    self._ownership.acquire(chosen)
        self._ownership = decided_ownership
        return found

    def plan_unconflicted(self, matches: Sequence[Match]) -> None:
        """Decide on the matches without a conflict; refuse the others."""
        for match in matches:
            conflict = self._ownership.conflict(match) or self._ownership.unmaterialized_operand(match)
            if conflict is None:
                self._decide(match.output, match)
            elif match.output not in self.plan.decisions:
                sentence = f"{match.name}: another match has %{conflict.name}"
                refusal = Refusal("outranked", sentence, match.output.name)
                self.plan.decisions[match.output] = match, Decision(None, sentence, refusal)

    def plan_elementwise(self, finder: ElementwiseFinder) -> None:
        """Decide on the elementwise regions of what no other match owns; the others have them as parts."""
        ownership = self._ownership
        found = list(finder.find(self.plan.graph, ownership.owned.__contains__, ownership.materialized.__contains__))
        for match in found:
            if ownership.unmaterialized_operand(match) is None and ownership.conflict(match) is None:
                self._decide(match.output, match)

    def plan_glue_ops(self, support_query: KernelSupportQuery) -> None:
        """Dispatch glue ops, which would otherwise split call groups."""
        refused = {
            node
            for node, (match, decision) in self.plan.decisions.items()
            if match is not None and decision.refusal is not None and decision.refusal.code in _NOT_WORTH_A_CALL
            if cost_model_of(match).may_be_glue_op(match)
        }
        dispatched = [candidate.match for candidate in self.plan.dispatched]
        # Few kernels widen the result of a maximum or a sum.
        unrounded = [
            match
            for match, decision in self.plan.decisions.values()
            if match is not None and decision.refusal is not None and decision.refusal.code == "reference-kernel"
        ]
        found = find_glue_ops(
            dispatched, refused, unrounded, self._matcher, self._ownership, support_query, self._results
        )
        for match, candidate in found.rounded.items():
            match_before, decision = self.plan.decisions[match.node]
            now = (
                replace(decision, candidate=candidate)
                if decision.candidate is not None
                else Decision(candidate, REASON)
            )
            self.plan.decisions[match.node] = match_before, now
            self._ownership.extend(match, candidate.match)
        for node, glue_op in found.glue_ops.items():
            self.plan.decisions[node] = (
                glue_op.match,
                Decision(glue_op.default.candidate, REASON, epilogue_refusal=glue_op.default.epilogue_refusal),
            )
            self._ownership.acquire(glue_op.default.candidate.match)

    def _match(self, node: Node) -> Match | Refusal:
        ownership = self._ownership
        return self._matcher.match(
            node, ownership.owned.__contains__, ownership.materialized.__contains__, self._results
        )

    def _match_and_asked(self, node: Node) -> tuple[Match | Refusal, set[Node]]:
        """An anchor's match, and the instructions on whose ownership it depends."""
        asked: set[Node] = set()
        owned = RecordedMembership(self._ownership.owned, asked)
        materialized = RecordedMembership(self._ownership.materialized, asked)
        return self._matcher.match(node, owned, materialized, self._results), asked

    def _decide(self, node: Node, match: Match) -> Decision:
        decision = self._decide_on(match)
        self.plan.decisions[node] = match, decision
        if decision.candidate is not None:
            self._ownership.acquire(decision.candidate.match)
        return decision

    def _refuse(self, node: Node, refusal: Refusal) -> None:
        self.plan.decisions[node] = None, Decision(None, refusal.sentence, refusal)

    def _competing_match_sizes(self, matches: Iterable[Match]) -> dict[Node, int]:
        """Instruction of a pattern's match → size of the largest anchor's match that could own it."""
        sizes: dict[Node, int] = {}
        for node in _nearest_before(matches, set(self._matcher.anchors())):
            match = self._match(node)
            if not isinstance(match, Refusal):
                for covered in match.covered:
                    sizes[covered] = max(sizes.get(covered, 0), len(match.covered))
        return sizes


def _is_same(one: Match | None, other: Match | None) -> bool:
    """Whether two variants own and read the same instructions, where they are of one anchor."""
    if one is None or other is None:
        return one is other
    return one.output is other.output and one.covered == other.covered


def _nearest_before(matches: Iterable[Match], anchors: AbstractSet[Node]) -> AbstractSet[Node]:
    """The anchors in the matches or right before them: an epilogue does not extend past another anchor."""
    pending = [node for match in matches for node in match.covered]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            if node not in anchors:
                pending += node.operands
    return seen & anchors


def _is_outweighed(match: Match, competing_sizes: dict[Node, int]) -> bool:
    """Whether an anchor's match covers more instructions; the pattern wins a tie."""
    return any(competing_sizes.get(node, 0) > match.precedence for node in match.covered)
