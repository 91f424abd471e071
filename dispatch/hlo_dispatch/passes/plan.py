"""The plan for one computation: every pattern and anchor matched and decided before anything is touched.

Who gets an instruction that both could have: the one that covers more. So attention comes first, which holds two
products and a softmax; then patterns where they cover at least as much as any anchor's match they overlap, then the
anchors, then the patterns that were outweighed, where nothing took what they want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.attention.attention_match import AttentionMatch
from hlo_dispatch.match.attention.finder import AttentionFinder
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.protocol import CallableMatch
from hlo_dispatch.match.routines.routine import RoutineFinder
from hlo_dispatch.match.structural.finder import Found, StructuralFinder
from hlo_dispatch.match.structural.structural_match import Miss
from hlo_dispatch.passes.glue_ops import REASON, joints
from hlo_dispatch.passes.ownership import Claims
from hlo_dispatch.selection.candidate import Ask, Candidate
from hlo_dispatch.selection.decide import Decision
from hlo_dispatch.selection.family_cost_models import rule_of

# Why a region that a kernel takes stays with XLA: for all that is known a call of its own would not pay.
_TOO_SMALL = ("policy", "slower")

Decided = tuple[CallableMatch | None, Decision]
"""A match, if there is one, and what became of it."""


@dataclass
class ComputationPlan:
    """What will happen to one computation."""

    graph: FlatGraph
    decisions: dict[Node, Decided] = field(default_factory=dict[Node, Decided])
    """Anchor, or a pattern's result → its match (None if it could not even be read) and what was decided."""
    misses: list[Miss] = field(default_factory=list[Miss])
    """Where the patterns that matched nowhere came closest."""
    calls: dict[Node, str] = field(default_factory=dict[Node, str])
    """Dispatched anchor, or a pattern's result → the name of its custom-call, once the module is edited."""

    def give_up(self, problem: str, code: str = "rewrite-unsupported", *, is_slower: bool = False) -> None:
        """Refuse everything that was to be dispatched here, or only what need not be where it is merely slower."""
        for node, (match, decision) in self.decisions.items():
            if decision.candidate is not None and not (is_slower and decision.is_needed):
                refusal = Refusal(code, problem, node.name)
                self.decisions[node] = match, Decision(None, problem, refusal)

    @property
    def dispatched(self) -> list[Candidate]:
        return [decision.candidate for _, decision in self.decisions.values() if decision.candidate is not None]


def plan_computation(
    graph: FlatGraph,
    matcher: Matcher,
    patterns: StructuralFinder,
    routines: RoutineFinder,
    attentions: AttentionFinder,
    decide_on: Callable[[CallableMatch], Decision],
    *,
    small: bool,
    prefetched: Callable[[CallableMatch], CallableMatch | None] | None = None,
    between: Ask | None = None,
) -> ComputationPlan:
    """Match and decide every pattern and anchor of `graph`.

    Args:
        decide_on: what is chosen for a match.
        small: the computation runs inside one of XLA's small calls, which hold no custom-calls.
        prefetched: has the kernel asked about a match meanwhile; returns the variant of it that will most likely be
            chosen, or None. Without it every question waits for its answer.
        between: what the kernels say to a match, where what lies between calls is dispatched, too.
    """
    for node in graph.nodes:
        node.is_result = False  # of an earlier plan
    planner = _Planner(graph, matcher, decide_on, prefetched)
    found = patterns.find(graph) if patterns else Found()
    if small:
        planner.refuse_all(Refusal("small-call", "XLA runs this computation as one small call"), found.matches)
        return planner.plan
    planner.plan_routines(routines.find(graph))
    held = planner.plan_attentions(attentions.find(graph))
    planner.plan.misses = list(found.misses.values())
    # A softmax inside an attention is nothing that was outranked: it is a part of it.
    outweighed = planner.plan_patterns([match for match in found.matches if not set(match.covered) <= held])
    planner.plan_anchors()
    planner.plan_rest(outweighed)
    if between is not None:
        planner.plan_between(between)
    return planner.plan


@dataclass(frozen=True)
class _Foreseen:
    """What an anchor matches as long as what was decided before it is what was expected."""

    match: CallableMatch | Refusal
    chosen: CallableMatch | None = None
    """The variant of the match that is expected to be chosen; None: stock."""
    obstacles: AbstractSet[Node] = frozenset()
    """Instructions that earlier matches were expected to have, and that this one would otherwise have had a use for."""


class _Planner:
    def __init__(
        self,
        graph: FlatGraph,
        matcher: Matcher,
        decide_on: Callable[[CallableMatch], Decision],
        prefetched: Callable[[CallableMatch], CallableMatch | None] | None,
    ) -> None:
        self.plan = ComputationPlan(graph)
        self._matcher, self._decide_on, self._prefetched = matcher, decide_on, prefetched
        self._claims = Claims(graph.root)

    def refuse_all(self, refusal: Refusal, matches: Sequence[CallableMatch]) -> None:
        """Leave every pattern and anchor to XLA."""
        for match in matches:
            refused = replace(refusal, instruction=match.output.name)
            self.plan.decisions[match.output] = match, Decision(None, refusal.sentence, refused)
        for node in self._matcher.anchors():
            self._refuse(node, replace(refusal, instruction=node.name))

    def plan_routines(self, found: Iterable[tuple[Node, CallableMatch | Refusal]]) -> None:
        """Settle the library calls, which nothing else covers, and products that may be an anchor's afterwards."""
        for node, match in found:
            if isinstance(match, Refusal):
                self._refuse(node, match)
            elif (hidden := self._claims.hide(match)) is not None:
                sentence = f"it reads %{hidden.name}, which another kernel computes past"
                self._refuse(node, Refusal("outranked", sentence, node.name))
            else:
                self._settle(node, match)

    def plan_attentions(self, found: Iterable[tuple[Node, CallableMatch | Refusal]]) -> AbstractSet[Node]:
        """Settle attention, whose results nobody looks past afterwards; returns what the calls will cover."""
        before = set(self._claims.taken)
        self.plan_routines(found)
        for candidate in self.plan.dispatched:
            for result in candidate.match.results if candidate.match.family == AttentionMatch.family else ():
                if result is not None:
                    result.is_result = True
        return self._claims.taken - before

    def plan_patterns(self, matches: Sequence[CallableMatch]) -> Sequence[CallableMatch]:
        """Settle the patterns' matches; returns those that an anchor's match outweighs."""
        rivals = self._rivals(matches)
        outweighed = {match for match in matches if _gives_way(match, rivals)}
        self.plan_rest([match for match in matches if match not in outweighed])
        return [match for match in matches if match in outweighed]

    def plan_anchors(self) -> None:
        """Settle every anchor that no pattern has taken."""
        expected = self._look_ahead()
        vacated: set[Node] = set()
        for node in self._matcher.anchors():
            if node in self._claims.taken:
                continue
            foreseen = expected.get(node)
            if foreseen is None or not vacated.isdisjoint(foreseen.obstacles):
                foreseen = _Foreseen(self._match(node))
            match, chosen = foreseen.match, foreseen.chosen
            if isinstance(match, Refusal):
                if node not in self.plan.decisions:  # as a library's routine it was understood
                    self._refuse(node, match)
            elif (hidden := self._claims.hide(match)) is not None:
                sentence = f"it reads %{hidden.name}, which a pattern's kernel computes past"
                self._refuse(node, Refusal("outranked", sentence, node.name))
            else:
                decision = self._settle(node, match)
                if not _is_as_expected(decision, chosen):
                    # What follows was matched as if this had been chosen.
                    if decision.candidate is None and chosen is not None:
                        vacated.update(chosen.covered, chosen.reads)
                    else:
                        expected = {}

    def _look_ahead(self) -> dict[Node, _Foreseen]:
        """Match every anchor as if each were decided as is most likely, and have the kernels asked meanwhile."""
        found: dict[Node, _Foreseen] = {}
        if self._prefetched is None:
            return found
        settled, self._claims = self._claims, self._claims.copy()
        for node in self._matcher.anchors():
            if node not in self._claims.taken:
                match, obstacles = self._match_and_obstacles(node)
                chosen = None if isinstance(match, Refusal) or self._claims.hide(match) else self._prefetched(match)
                found[node] = _Foreseen(match, chosen, obstacles)
                if chosen is not None:
                    self._claims.claim(chosen)
        self._claims = settled
        return found

    def plan_rest(self, matches: Sequence[CallableMatch]) -> None:
        """Settle those of `matches` that nothing stands in the way of; the plan says of the others what does."""
        for match in matches:
            obstacle = self._claims.obstruct(match) or self._claims.hide(match)
            if obstacle is None:
                self._settle(match.output, match)
            elif match.output not in self.plan.decisions:
                sentence = f"{match.name}: another match has %{obstacle.name}"
                refusal = Refusal("outranked", sentence, match.output.name)
                self.plan.decisions[match.output] = match, Decision(None, sentence, refusal)

    def plan_between(self, ask: Ask) -> None:
        """Dispatch what joins calls, where a kernel computes it and XLA would part them."""
        refused = {
            node
            for node, (match, decision) in self.plan.decisions.items()
            if match is not None and decision.refusal is not None and decision.refusal.code in _TOO_SMALL
            if rule_of(match).may_link(match)
        }
        dispatched = [candidate.match for candidate in self.plan.dispatched]
        # Few kernels widen what they only choose from or add up.
        unrounded = [
            match
            for match, decision in self.plan.decisions.values()
            if match is not None and decision.refusal is not None and decision.refusal.code == "reference-kernel"
        ]
        found = joints(dispatched, refused, unrounded, self._matcher, self._claims, ask)
        for match, candidate in found.rounded.items():
            former, decision = self.plan.decisions[match.node]
            now = (
                replace(decision, candidate=candidate)
                if decision.candidate is not None
                else Decision(candidate, REASON)
            )
            self.plan.decisions[match.node] = former, now
            self._claims.exchange(match, candidate.match)
        for node, link in found.links.items():
            self.plan.decisions[node] = link.match, Decision(link.default.candidate, REASON, cut=link.default.cut)
            self._claims.claim(link.default.candidate.match)

    def _match(self, node: Node) -> CallableMatch | Refusal:
        return self._matcher.match(node, self._claims.taken.__contains__, self._claims.needed.__contains__)

    def _match_and_obstacles(self, node: Node) -> tuple[CallableMatch | Refusal, set[Node]]:
        """An anchor's match, and the instructions spoken for that it met."""
        obstacles: set[Node] = set()

        def met(claimed: set[Node]) -> Callable[[Node], bool]:
            return lambda other: other in claimed and not obstacles.add(other)

        return self._matcher.match(node, met(self._claims.taken), met(self._claims.needed)), obstacles

    def _settle(self, node: Node, match: CallableMatch) -> Decision:
        decision = self._decide_on(match)
        self.plan.decisions[node] = match, decision
        if decision.candidate is not None:
            self._claims.claim(decision.candidate.match)
        return decision

    def _refuse(self, node: Node, refusal: Refusal) -> None:
        self.plan.decisions[node] = None, Decision(None, refusal.sentence, refusal)

    def _rivals(self, matches: Iterable[CallableMatch]) -> dict[Node, int]:
        """Instruction of a pattern's match → how many the anchor's match covers that could have it."""
        sizes: dict[Node, int] = {}
        for node in _nearest_before(matches, set(self._matcher.anchors())):
            match = self._match(node)
            if not isinstance(match, Refusal):
                for covered in match.covered:
                    sizes[covered] = max(sizes.get(covered, 0), len(match.covered))
        return sizes


def _is_as_expected(decision: Decision, chosen: CallableMatch | None) -> bool:
    if decision.candidate is None or chosen is None:
        return decision.candidate is None and chosen is None
    match = decision.candidate.match
    return match.output is chosen.output and match.covered == chosen.covered


def _nearest_before(matches: Iterable[CallableMatch], anchors: AbstractSet[Node]) -> AbstractSet[Node]:
    """The anchors in the matches or in front of them: an epilogue passes no other anchor on its way into a match."""
    waiting = [node for match in matches for node in match.covered]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            if node not in anchors:
                waiting += node.operands
    return seen & anchors


def _gives_way(match: CallableMatch, rivals: dict[Node, int]) -> bool:
    """Whether an anchor's match covers more; equal numbers go to the pattern, which was asked for."""
    return any(rivals.get(node, 0) > match.precedence for node in match.covered)
