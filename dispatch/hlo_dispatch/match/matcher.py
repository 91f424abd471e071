"""Anchor matcher: matches every anchor op of a flat graph, normalized for its kernel, with its epilogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import replace
from functools import partial

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_BITCASTS, PEEL_SLICES
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.opcode import ANCHORS
from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings
from hlo_dispatch.match.anchors.normalizers import by_op_kind, has_op_kind, normalize_anchor, op_kind_of
from hlo_dispatch.match.anchors.scaling import is_leading_scaling
from hlo_dispatch.match.anchors.sliced_result import NodePredicate, narrow_to_slice
from hlo_dispatch.match.epilogue.finder import EpilogueFinder
from hlo_dispatch.match.epilogue.operand import in_memory
from hlo_dispatch.match.epilogue.steps import rounded_alike
from hlo_dispatch.match.fused_anchor import FusedAnchor
from hlo_dispatch.match.match import Match, match_of_anchor
from hlo_dispatch.pattern import Table
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES, MAY_BE_ANCHORS, MAY_BE_GLUE_OPS, OP_KINDS, SUM_TYPE
from hlo_dispatch.process.machine import Machine

# Number of instructions above a value among which its anchor op is searched.
_MAX_SEARCHED = 128
# Opcodes that may follow an anchor op of which a slice is used.
_UP_TO_SLICE = PEEL_ROUNDING_AND_BITCASTS | PEEL_SLICES


class Matcher:
    """Matches one flat graph against one table. The caller iterates over anchor ops and owns accepted matches."""

    def __init__(self, graph: FlatGraph, table: Table, finder: EpilogueFinder, machine: Machine) -> None:
        self._graph, self._machine = graph, machine
        found = [node for node in reversed(graph.nodes) if node.opcode in MAY_BE_ANCHORS and has_op_kind(node)]
        self._anchors = sorted(found, key=lambda node: node.opcode not in ANCHORS)
        self._finder, self._memo = finder, finder.memo(table.fingerprint, machine, graph.has_narrow_integers)
        self._entries = by_op_kind(table.anchors.values())
        self._normalized: dict[Node, Anchor | Refusal] = {}
        self._possible_results: dict[Node, frozenset[Node]] = {}

    def anchors(self) -> list[Node]:
        """The anchor ops, last first, so that a residual add belongs to the anchor op that runs last.

        Poolings come after all others, because one cuts out the gradient of a depthwise convolution.
        """
        return self._anchors

    def glue_ops(self) -> list[Node]:
        """The glue ops, which a kernel computes only between two calls, in program order."""
        static = self._graph.static
        found = [node for node in self._graph.nodes if node.opcode in MAY_BE_GLUE_OPS and has_op_kind(node)]
        return [node for node in found if not (node in static and is_leading_scaling(node))]

    def entry_name(self, node: Node) -> str:
        """The name of the first table entry for `node` and its element type, or for its op kind; the name of its op
        kind where the table has none.
        """
        op_kind = op_kind_of(node, Surroundings(self._graph, self._machine))
        entries = self._entries.get(op_kind, ())
        kind = node.shape.element_type
        fitting = [entry for entry in entries if any(map(entry.takes, INTEGER_TYPES if kind == SUM_TYPE else (kind,)))]
        return next((entry.name for entry in (*fitting, *entries)), op_kind)

    def match(
        self,
        node: Node,
        is_owned: Callable[[Node], bool],
        is_materialized: Callable[[Node], bool],
        results: AbstractSet[Node] = frozenset(),
    ) -> Match | Refusal:
        """The anchor op at `node` with the longest epilogue that no other match owns or reads from inside.

        Args:
            is_owned: whether another match owns an instruction.
            is_materialized: whether a value must be in memory.
            results: results of dispatched calls, in front of which values may not exist.
        """
        static = self._graph.static
        found = self._memo.match(
            node,
            [is_owned, is_materialized, results.__contains__, static.__contains__],
            self._graph,
            lambda predicates: self._match(node, predicates[0], predicates[1], results),
            lambda predicates: self.match_apart(node, predicates, results),
        )
        if isinstance(found, Refusal):
            self._normalized[node] = found
        elif found.anchor.unsliced is None:
            self._normalized[node] = found.anchor
        return found

    def match_apart(
        self, node: Node, predicates: Sequence[Callable[[Node], bool]], results: AbstractSet[Node]
    ) -> Match | Refusal | None:
        """The match as if nothing were normalized yet; None: it depends on other anchor ops, or on the module."""
        is_owned, is_materialized, is_result, is_static = predicates
        apart = copy(self)
        apart._normalized, apart._possible_results = {}, {}
        asked_results = _AskedSet(results, is_result)
        found = apart._match(node, is_owned, is_materialized, asked_results)
        if isinstance(found, Refusal):
            return found
        anchor = found.anchor
        if anchor.weights is not None:
            is_static(anchor.weights.node)
        is_alone = apart._normalized.keys() == {node} and not apart._possible_results
        is_alone &= not asked_results.is_enumerated
        return found if is_alone and anchor.unsliced is None and anchor.kernel_specific_step is None else None

    def _match(
        self,
        node: Node,
        is_owned: Callable[[Node], bool],
        is_materialized: Callable[[Node], bool],
        results: AbstractSet[Node],
    ) -> Match | Refusal:
        anchor = self._anchor(node, results)
        if isinstance(anchor, Refusal):
            return anchor
        anchor, refused = _narrow_to_slice(anchor, is_owned, is_materialized)
        chain = self._finder.grow(
            anchor, is_owned, is_materialized, partial(self._is_result_of_another, results), results
        )
        if refused and not any(step.post_ops for step in chain.steps):
            chain = replace(chain, why=refused)
        return match_of_anchor(
            FusedAnchor(anchor, chain, rounded_alike(chain.steps, len(chain.steps)), static=self._graph.static)
        )

    def rematch(
        self,
        node: Node,
        is_owned: Callable[[Node], bool],
        is_materialized: Callable[[Node], bool],
        results: AbstractSet[Node],
    ) -> Match | Refusal:
        """The same with the anchor op normalized again, where the results have changed."""
        self._normalized.pop(node, None)
        return self._match(node, is_owned, is_materialized, results)

    def _anchor(self, node: Node, results: AbstractSet[Node]) -> Anchor | Refusal:
        if node not in self._normalized:
            anchor = normalize_anchor(node, self._entries, Surroundings(self._graph, self._machine, results))
            if not isinstance(anchor, Refusal):
                anchor = _with_materialized_operands(anchor)
            self._normalized[node] = anchor
        return self._normalized[node]

    def _is_result_of_another(self, results: AbstractSet[Node], anchor: Node, value: Node) -> bool:
        """Whether an anchor op above `value` could end its chain there, were every large operand in memory."""
        return any(
            value in self._results(source, results) for source in self._sources(value, results) if source is not anchor
        )

    def _sources(self, value: Node, results: AbstractSet[Node]) -> list[Node]:
        """The anchor ops whose results reach `value` through instructions that a chain could include."""
        found: list[Node] = []
        seen, pending = {value}, [value]
        while pending and len(seen) < _MAX_SEARCHED:
            node = pending.pop()
            if node.opcode in ANCHORS or self._pools_half(node, results):
                found.append(node)
                continue
            for operand in node.operands:
                if operand not in seen and operand.shape.elements == value.shape.elements:
                    seen.add(operand)
                    pending.append(operand)
        return found

    def _pools_half(self, node: Node, results: AbstractSet[Node]) -> bool:
        """Whether a kernel would pool half precision here, and so produce the value that XLA rounds afterwards."""
        if node.opcode not in MAY_BE_ANCHORS or not has_op_kind(node):
            return False
        anchor = self._anchor(node, results)
        return not isinstance(anchor, Refusal) and anchor.source.element_type in HALF_TYPES

    def _results(self, node: Node, results: AbstractSet[Node]) -> frozenset[Node]:
        if node not in self._possible_results:
            anchor = self._anchor(node, results)
            possible = [node]
            if not isinstance(anchor, Refusal):
                chain = self._finder.grow(
                    anchor, lambda _: False, lambda value: value.is_live_out, lambda _anchor, _value: True, results
                )
                possible += [step.result for step in chain.steps]
            self._possible_results[node] = frozenset(possible)
        return self._possible_results[node]


class _AskedSet(AbstractSet[Node]):
    """A set that is asked for membership through a predicate; whether more than that was read of it."""

    def __init__(self, members: AbstractSet[Node], is_member: Callable[[Node], bool]) -> None:
        self._members, self._is_member = members, is_member
        self.is_enumerated = False

    @classmethod
    def _from_iterable(cls, it: Iterable[Node]) -> AbstractSet[Node]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return frozenset(it)  # unions are sets as any other: all of this one was read for them

    def __contains__(self, node: object) -> bool:
        return self._is_member(node)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[Node]:
        self.is_enumerated = True
        return iter(self._members)

    def __len__(self) -> int:
        self.is_enumerated = True
        return len(self._members)


def _may_give_slice(anchor: Anchor) -> bool:
    """Whether a kernel may compute just a slice of the result, which none does of integers."""
    return OP_KINDS[anchor.entry.op_kind].may_give_slice and anchor.source.element_type not in INTEGER_TYPES


def _narrow_to_slice(anchor: Anchor, is_owned: NodePredicate, is_materialized: NodePredicate) -> tuple[Anchor, str]:
    """The anchor for the used slice of its result; and where XLA keeps that slice, the reason."""
    users = anchor.node.users
    if len(users) != 1 or users[0].opcode not in _UP_TO_SLICE or not _may_give_slice(anchor):
        return anchor, ""
    while True:
        smaller = narrow_to_slice(anchor, is_owned, is_materialized)
        if not isinstance(smaller, Anchor):
            return anchor, smaller or ""
        kind = smaller.result.shape.element_type
        if not anchor.entry.gives(kind):
            return anchor, f"the slice that follows is of {kind}, which {anchor.entry.name} does not give"
        anchor = smaller


def _with_materialized_operands(anchor: Anchor) -> Anchor:
    """The anchor with unmaterialized operands replaced by bitcasts of them that are in memory.

    The normalizers peel a bitcast at the end of a fusion, behind which there is no value in memory.
    """
    source, weights = anchor.source, anchor.weights
    if source.node.top_level_id is None:
        source = in_memory(source, lambda _: False) or source
    if weights is not None and weights.node.top_level_id is None:
        weights = in_memory(weights, lambda _: False) or weights
    if source is anchor.source and weights is anchor.weights:
        return anchor
    return replace(anchor, source=source, weights=weights)
