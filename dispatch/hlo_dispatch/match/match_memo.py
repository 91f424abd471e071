"""Match memo: matches by dependency trace, so that equal surroundings are matched once.

Networks repeat their layers. A match is kept without its nodes, and made again of those that its trace reaches from
another node (dependency_trace.py), in this module or in a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, cast

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.dependency_trace import Predicate, Trace, record
from hlo_dispatch.match.epilogue.steps import Chain
from hlo_dispatch.match.fused_anchor import FusedAnchor
from hlo_dispatch.match.match import Match

RECORDED_FROM = 6
"""Anchor ops of one kind that are matched before one is recorded, which takes longer than to match it: programs with
few equal layers are not to pay for it."""
MOST_RECORDED = 6
"""Traces of one kind: where that many differ, others will, too."""
_MOST_KINDS = 20_000

Found = TypeVar("Found")
Maker = Callable[[Sequence[Node]], Any]
MakerOf = Callable[[FlatGraph, Sequence[Node]], Found]
"""Makes what was found at one node of the nodes that are reached from another one."""


@dataclass
class _Kind:
    """Anchor ops that look the same at a glance."""

    seen: int = 0
    recorded: int = 0
    """Anchor ops that were recorded since a trace was last followed to its end."""
    traces: list[tuple[Trace, MakerOf[Any]]] = field(default_factory=list[Any])
    """The newest ones."""


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
        for trace, made_of in reversed(kind.traces):
            nodes = trace.follow(node, predicates, graph)
            if nodes is not None:
                kind.recorded = 0
                return made_of(graph, nodes)
        kind.seen += 1
        if kind.seen <= RECORDED_FROM or (kind.recorded >= self._most_recorded and not self._is_tried_again(kind)):
            return find(predicates)
        kind.recorded += 1
        found, trace, nodes = record(find_apart, node, predicates)
        if found is None:
            return find(predicates)
        if trace is not None:
            made_of = (maker_of or maker_of_match)(found, {node: place for place, node in enumerate(nodes)})
            if made_of is not None:
                kind.traces = [*kind.traces, (trace, made_of)][-self._most_recorded :]
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
    try:
        of_fused = None if fused is None else _maker((fused.anchor, fused.chain), places)
        of_operands = _maker(tuple(match.operands.values()), places)
        of_match = [(name, _maker(getattr(match, name), places)) for name in varying]
    except KeyError:
        return None
    assert of_operands is not None, "a match has operands"
    roles, attributes, numerics = tuple(match.operands), match.attributes(), match.numerics()
    constant = {f.name: getattr(match, f.name) for f in fields(match) if f.name not in (*varying, "fused", "operands")}
    constant |= {"attributes": attributes.copy, "numerics": lambda: numerics, "fused": None}
    if fused is None:
        constant["facts"] = match.facts
    step_count, facts = (0, {}) if fused is None else (fused.step_count, fused.facts)

    def made(graph: FlatGraph, nodes: Sequence[Node]) -> Match:
        equal: Match = object.__new__(Match)
        values = vars(equal)
        values.update(constant)
        values["operands"] = dict(zip(roles, of_operands(nodes), strict=True))
        if of_fused is not None:
            anchor, chain = of_fused(nodes)
            values["fused"] = FusedAnchor(anchor, chain, step_count, static=graph.static).with_facts(facts)
        for name, maker in of_match:
            values[name] = maker(nodes) if maker is not None else ()
        return equal

    return made


def maker_of_values(values: tuple[Any, ...], places: dict[Node, int]) -> Maker | None:
    """A function that makes equal values of other nodes; None: they have no nodes, or some without places."""
    try:
        return _maker(values, places)
    except KeyError:
        return None


def _maker(value: Any, places: dict[Node, int]) -> Maker | None:
    """A function that makes an equal value of other nodes; None: there are no nodes inside.

    Raises:
        KeyError: a node inside has no place, or would have to be looked for.
    """
    if isinstance(value, Node):
        return itemgetter(places[value])
    if isinstance(value, (dict, list, set, frozenset)):
        if _has_nodes(value):
            raise KeyError("a collection of nodes is not made again")
        return None
    if isinstance(value, partial):
        if value.keywords:
            raise KeyError("named arguments of a function are not made again")
        function: Callable[..., Any] = value.func
        parts = _maker(value.args, places)
        return None if parts is None else lambda nodes: partial(function, *parts(nodes))
    if isinstance(value, tuple):
        return _maker_of_tuple(cast("tuple[Any, ...]", value), places)
    if isinstance(value, (Anchor, Chain)):
        return _maker_of_fields(value, places)
    return None


def _has_nodes(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*cast("dict[Any, Any]", value).items()]
    elif not isinstance(value, (list, set, frozenset, tuple)):
        return isinstance(value, Node)
    return any([_has_nodes(part) for part in cast("Iterable[Any]", value)])


def _maker_of_tuple(value: tuple[Any, ...], places: dict[Node, int]) -> Maker | None:
    if len(value) > 1 and all([isinstance(part, Node) for part in value]):
        return itemgetter(*[places[part] for part in value])
    makers = [_maker(part, places) for part in value]
    if not any(makers):
        return None
    make: Callable[[list[Any]], Any] = getattr(type(value), "_make", tuple)
    parts = [(None if maker else part, maker) for part, maker in zip(value, makers, strict=True)]
    return lambda nodes: make([part if maker is None else maker(nodes) for part, maker in parts])


def _maker_of_fields(value: Anchor | Chain, places: dict[Node, int]) -> Maker:
    made_of = type(value)
    makers = {name: _maker(part, places) for name, part in vars(value).items()}
    varying = [(name, maker) for name, maker in makers.items() if maker is not None]
    constant = {name: part for name, part in vars(value).items() if makers[name] is None}

    def make(nodes: Sequence[Node]) -> Any:
        made = object.__new__(made_of)
        values = vars(made)
        values.update(constant)
        for name, maker in varying:
            values[name] = maker(nodes)
        return made

    return make
