"""The plan for one computation: every pattern and anchor matched and decided before anything is touched.

Who gets an instruction that both could have: the one that covers more. So patterns come first where they
cover at least as much as any anchor's match they overlap, then the anchors, then the patterns that were
outweighed, where nothing took what they want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import FlatGraph, Node
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.match.routine import RoutineFinder, RoutineMatch
from hlo_dispatch.match.structural import Found, StructuralFinder
from hlo_dispatch.match.structural_match import Miss, StructuralMatch
from hlo_dispatch.policy.decide import Candidate, Decision, decide
from hlo_dispatch.policy.machine import Machine
from hlo_dispatch.rewriting.claims import Claims


AnyMatch = Match | StructuralMatch | RoutineMatch


@dataclass
class ComputationPlan:
    """What will happen to one computation."""

    graph: FlatGraph
    decisions: dict[Node, tuple[AnyMatch | None, Decision]] = field(default_factory=dict)
    """Anchor, or a pattern's result → its match (None if it could not even be read) and what was decided."""
    misses: list[Miss] = field(default_factory=list)
    """Where the patterns that matched nowhere came closest."""
    calls: dict[Node, str] = field(default_factory=dict)
    """Dispatched anchor, or a pattern's result → the name of its custom-call, once the module is edited."""

    def give_up(self, problem: str) -> None:
        """Refuse everything that was to be dispatched here."""
        for node, (match, decision) in self.decisions.items():
            if decision:
                refusal = Refusal("rewrite-unsupported", problem, node.name)
                self.decisions[node] = match, Decision(None, problem, refusal)

    @property
    def dispatched(self) -> list[Candidate]:
        return [decision.candidate for _, decision in self.decisions.values() if decision.candidate is not None]


def plan_computation(
    graph: FlatGraph,
    matcher: Matcher,
    patterns: StructuralFinder,
    routines: RoutineFinder,
    machine: Machine,
    policy: str,
    ask: Callable[[AnyMatch], Candidate | Refusal],
    *,
    small: bool,
) -> ComputationPlan:
    """Match and decide every pattern and anchor of `graph`.

    Args:
        small: the computation runs inside one of XLA's small calls, which hold no custom-calls.
    """
    planner = _Planner(graph, matcher, lambda match: decide(match, machine, policy, ask))
    found = patterns.find(graph) if patterns else Found()
    if small:
        planner.refuse_all(Refusal("small-call", "XLA runs this computation as one small call"), found.matches)
        return planner.plan
    planner.plan_routines(routines.find(graph))
    planner.plan.misses = list(found.misses.values())
    outweighed = planner.plan_patterns(found.matches)
    planner.plan_anchors()
    planner.plan_rest(outweighed)
    return planner.plan


class _Planner:
    def __init__(
        self, graph: FlatGraph, matcher: Matcher, decide_on: Callable[[AnyMatch], Decision]
    ) -> None:
        self.plan = ComputationPlan(graph)
        self._matcher, self._decide_on = matcher, decide_on
        self._claims = Claims(graph.root)

    def refuse_all(self, refusal: Refusal, matches: list[StructuralMatch]) -> None:
        """Leave every pattern and anchor to XLA."""
        for match in matches:
            refused = replace(refusal, instruction=match.output.name)
            self.plan.decisions[match.output] = match, Decision(None, refusal.sentence, refused)
        for node in self._matcher.anchors():
            self._refuse(node, replace(refusal, instruction=node.name))

    def plan_routines(self, found: Iterable[tuple[Node, RoutineMatch | Refusal]]) -> None:
        """Settle the library calls: nothing else covers those."""
        for node, match in found:
            if isinstance(match, Refusal):
                self._refuse(node, match)
            elif (hidden := self._claims.hide(match)) is not None:
                sentence = f"it reads %{hidden.name}, which another kernel computes past"
                self._refuse(node, Refusal("outranked", sentence, node.name))
            else:
                self._settle(node, match)

    def plan_patterns(self, matches: list[StructuralMatch]) -> list[StructuralMatch]:
        """Settle the patterns' matches; returns those that an anchor's match outweighs."""
        rivals = self._rivals() if matches else {}
        outweighed = {match for match in matches if _gives_way(match, rivals)}
        self.plan_rest([match for match in matches if match not in outweighed])
        return [match for match in matches if match in outweighed]

    def plan_anchors(self) -> None:
        """Settle every anchor that no pattern has taken."""
        for node in self._matcher.anchors():
            if node in self._claims.taken:
                continue
            match = self._match(node)
            if isinstance(match, Refusal):
                self._refuse(node, match)
            elif (hidden := self._claims.hide(match)) is not None:
                sentence = f"it reads %{hidden.name}, which a pattern's kernel computes past"
                self._refuse(node, Refusal("outranked", sentence, node.name))
            else:
                self._settle(node, match)

    def plan_rest(self, matches: list[StructuralMatch]) -> None:
        """Settle those of `matches` that nothing stands in the way of; the plan says of the others what does."""
        for match in matches:
            obstacle = self._claims.obstruct(match) or self._claims.hide(match)
            if obstacle is None:
                self._settle(match.output, match)
            elif match.output not in self.plan.decisions:
                sentence = f"{match.pattern.name}: another match has %{obstacle.name}"
                refusal = Refusal("outranked", sentence, match.output.name)
                self.plan.decisions[match.output] = match, Decision(None, sentence, refusal)

    def _match(self, node: Node) -> Match | Refusal:
        return self._matcher.match(node, self._claims.taken.__contains__, self._claims.needed.__contains__)

    def _settle(self, node: Node, match: AnyMatch) -> None:
        decision = self._decide_on(match)
        self.plan.decisions[node] = match, decision
        if decision.candidate is not None:
            self._claims.claim(decision.candidate.match)

    def _refuse(self, node: Node, refusal: Refusal) -> None:
        self.plan.decisions[node] = None, Decision(None, refusal.sentence, refusal)

    def _rivals(self) -> dict[Node, int]:
        """Instruction → how many the anchor's match covers that could have it."""
        sizes: dict[Node, int] = {}
        for node in self._matcher.anchors():
            match = self._match(node)
            if not isinstance(match, Refusal):
                for covered in match.covered:
                    sizes[covered] = max(sizes.get(covered, 0), len(match.covered))
        return sizes


def _gives_way(match: StructuralMatch, rivals: dict[Node, int]) -> bool:
    """Whether an anchor's match covers more; equal numbers go to the pattern, which was asked for."""
    weight = match.pattern.priority if match.pattern.is_ordered else len(match.covered)
    return any(rivals.get(node, 0) > weight for node in match.covered)
