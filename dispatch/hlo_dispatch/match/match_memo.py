"""Match memo: matches by dependency trace, so that equal surroundings are matched once.

Networks repeat their layers. A match is kept without its nodes, and made again of those that its trace reaches from
another node (dependency_trace.py), in this module or in a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.match.dependency_trace import Predicate, Trace, record
from hlo_dispatch.match.equal_values import maker_of_values
from hlo_dispatch.match.match import Match

RECORDED_FROM = 6
"""Anchor ops of one kind that are matched before one is recorded, which takes longer than to match it: programs with
few equal layers are not to pay for it."""
MOST_RECORDED = 6
"""Traces of one kind: where that many differ, others will, too."""
MOST_MISSED = 2 * MOST_RECORDED
"""Anchor ops of one kind, one after the other, at which no trace is followed to its end."""
_MOST_KINDS = 20_000

Found = TypeVar("Found")
MakerOf = Callable[[FlatGraph, Sequence[Node]], Found]
"""Makes what was found at one node of the nodes that are reached from another one."""


@dataclass(eq=False)
class _Known:
    """A trace, and what makes that which was found."""

    trace: Trace
    made_of: MakerOf[Any]
    next: _Known | None = None
    """The one that was followed to its end after this one, the last time: layers repeat in their order."""


@dataclass
class _Kind:
    """Anchor ops that look the same at a glance."""

    seen: int = 0
    recorded: int = 0
    """Anchor ops that were recorded, less those at which a trace was followed to its end."""
    missed: int = 0
    """Anchor ops at which no trace was, since one was or one was recorded."""
    traces: list[_Known] = field(default_factory=list[_Known])
    """The newest ones."""
    latest: _Known | None = None
    """The one that was last followed to its end."""

    def likely_first(self) -> Iterator[_Known]:
        expected = None if self.latest is None else self.latest.next
        if expected is not None:
            yield expected
        for known in reversed(self.traces):
            if known is not expected:
                yield known

    def note_hit(self, known: _Known, most_recorded: int) -> None:
        self.recorded, self.missed = max(min(self.recorded, most_recorded) - 1, 0), 0
        if self.latest is not None:
            self.latest.next = known
        self.latest = known


class MatchMemo:
    """What one function finds at nodes, under the same settings, by what it read to find it.

    Safe to use from several threads.
    """

    def __init__(self, most_recorded: int = MOST_RECORDED) -> None:
        """`most_recorded`: traces of one kind; 0: it finds every match anew."""
        self._most_recorded = most_recorded
        self._kinds: dict[Hashable, _Kind] = {}

    def match(
        self,
        node: Node,
        predicates: Sequence[Predicate],
        graph: FlatGraph,
        find: Callable[[Sequence[Predicate]], Found],
        find_apart: Callable[[Sequence[Predicate]], Found | None],
        maker_of: Callable[[Found, dict[Node, int]], MakerOf[Found] | None] | None = None,
    ) -> Found:
        """What is found at a node, made of what was found at an equal one where there is one.

        Args:
            predicates: all that it depends on besides the graph.
            find: finds it, by these predicates.
            find_apart: the same by predicates that ask these, while what it reads is recorded: it recalls nothing. None
                where something else has a say.
            maker_of: makes a maker of what was found, by the places of its nodes; None: it cannot be made again. The
                default is that of a match.
        """
        # By identity: hashing shapes takes longer, and the traces say whether it is the same.
        key = (node.opcode, id(node.shape), *[id(operand.shape) for operand in node.operands])
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = _Kind()
        kind.seen += 1
        is_tried_again = self._is_tried_again(kind)
        if kind.traces and (kind.missed < MOST_MISSED or is_tried_again):
            for known in kind.likely_first():
                nodes = known.trace.follow(node, predicates, graph)
                if nodes is not None:
                    kind.note_hit(known, self._most_recorded)
                    return known.made_of(graph, nodes)
            kind.missed += 1
        if kind.seen <= RECORDED_FROM or (kind.recorded >= self._most_recorded and not is_tried_again):
            return find(predicates)
        kind.recorded += 1
        found, trace, nodes = record(find_apart, node, predicates)
        if found is None:
            return find(predicates)
        if trace is not None:
            made_of = (maker_of or maker_of_match)(found, {node: place for place, node in enumerate(nodes)})
            if made_of is not None:
                kind.traces, kind.missed = [*kind.traces, _Known(trace, made_of)][-self._most_recorded :], 0
        return found

    def _is_tried_again(self, kind: _Kind) -> bool:
        """Each time that twice as many were seen: a later module may repeat what an earlier one did not."""
        return self._most_recorded > 0 and kind.seen & (kind.seen - 1) == 0


def maker_of_match(match: Any, places: dict[Node, int]) -> MakerOf[Any] | None:
    """A function that makes an equal match of other nodes; None: it is a refusal, or has nodes without places."""
    if not isinstance(match, Match):
        return None
    fused = match.fused
    varying = ("covered", "extra_reads", "node", "output", "reads", "results")
    roles, attributes, numerics = tuple(match.operands), match.attributes(), match.numerics()
    facts = match.facts
    make = maker_of_values((tuple(match.operands.values()), fused, *[getattr(match, name) for name in varying]), places)
    if make is None:
        return None
    constant = {f.name: getattr(match, f.name) for f in fields(match) if f.name not in (*varying, "fused", "operands")}
    constant |= {"attributes": attributes.copy, "numerics": lambda: numerics, "facts": facts}

    def made(graph: FlatGraph, nodes: Sequence[Node]) -> Match:
        equal: Match = object.__new__(Match)
        values = vars(equal)
        values.update(constant)
        operands, fused, *others = make(nodes)
        values.update(zip(varying, others, strict=True))
        values["operands"], values["fused"] = dict(zip(roles, operands, strict=True)), fused
        if fused is not None:
            fused.static = graph.static
        return equal

    return made
