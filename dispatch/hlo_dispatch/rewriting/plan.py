"""The plan for one computation: every anchor matched and decided before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import FlatGraph, Node
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.matcher import Matcher
from hlo_dispatch.policy.decide import Candidate, Decision, decide
from hlo_dispatch.policy.machine import Machine


@dataclass
class ComputationPlan:
    """What will happen to one computation."""

    graph: FlatGraph
    decisions: dict[Node, tuple[Match | None, Decision]] = field(default_factory=dict)
    """Anchor → its match (None if it could not even be read) and what was decided."""

    @property
    def dispatched(self) -> list[Candidate]:
        return [decision.candidate for _, decision in self.decisions.values() if decision.candidate is not None]


def plan_computation(
    graph: FlatGraph,
    matcher: Matcher,
    machine: Machine,
    policy: str,
    ask: Callable[[Match], Candidate | Refusal],
    *,
    small: bool,
) -> ComputationPlan:
    """Match and decide every anchor of `graph`.

    Args:
        small: the computation runs inside one of XLA's small calls, which hold no custom-calls.
    """
    plan = ComputationPlan(graph)
    taken: set[Node] = set()
    # What a call reads has to be in memory, also where the call reads past a convert or a transpose.
    needed: set[Node] = {graph.root}
    for node in matcher.anchors():
        if small:
            refusal = Refusal("small-call", "XLA runs this computation as one small call", node.name)
            plan.decisions[node] = None, Decision(None, refusal.sentence, refusal)
            continue
        match = matcher.match(node, taken.__contains__, needed.__contains__)
        if isinstance(match, Refusal):
            plan.decisions[node] = None, Decision(None, match.sentence, match)
            continue
        decision = decide(match, machine, policy, ask)
        plan.decisions[node] = match, decision
        if decision.candidate is not None:
            taken.update(decision.candidate.match.covered)
            needed.update(view.node for view in decision.candidate.match.operands)
    return plan
