"""Attention finder: matches a product that reads a softmax over its contracted dimension, whose scores another product
computes.

Every instruction that depends on the first product must be matched, and no value inside may have users outside; else
the attention is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_LAYOUTS, peel_node
from hlo_dispatch.analysis.strided_view import View, operand_view
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import first_refusal, unsupported_types
from hlo_dispatch.match.attention.arrangement import AxisArrangement
from hlo_dispatch.match.attention.attention_match import match_of_attention
from hlo_dispatch.match.attention.axes import Axes
from hlo_dispatch.match.attention.axis_views import (
    AxisSplit,
    NotAttention,
    along_axes,
    with_one_inner_dimension,
)
from hlo_dispatch.match.attention.operands import follow_user, fully_peeled, match_products, peel_scale
from hlo_dispatch.match.attention.scores import Scores, producing_dot
from hlo_dispatch.match.attention.softmax import Softmax, exponential_of_softmax
from hlo_dispatch.match.attention.steps import ScoreStep, simplified
from hlo_dispatch.match.epilogue.operand import in_memory
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.match_memo import MakerOf, MatchMemo, maker_of_match
from hlo_dispatch.pattern import Table
from hlo_dispatch.pattern.table import Attention

_MAX_SPLITS = 16
_MAX_STEPS = 16
# f16 and bf16 products with sums in their type or in f32, and f32 ones: XLA's PrecisionConfig.Algorithm. The kernel's
# are no coarser.
_ALGORITHMS = frozenset((3, 4, 5, 6, 11))


class AttentionFinder:
    """Finder of one table's attentions in flat graphs; thread-safe."""

    def __init__(self, table: Table) -> None:
        self._entries = table.attentions
        self._memos = MatchMemo(), MatchMemo()
        """By the side of the second product that reads the softmax."""

    def find(self, graph: FlatGraph) -> Iterator[tuple[Node, Match | Refusal]]:
        """Every attention of `graph` in program order, by its exponential, or the refusal for it."""
        found: dict[Node, Match | Refusal] = {}
        products = [node for node in graph.nodes if node.opcode == "dot"] if self._entries else []
        for product in products:
            for side in (0, 1):
                if exponential_of_softmax(product.operands[side]) is None:
                    continue
                at = partial(_attention_at, graph, self._entries[0], product, side)
                here = self._memos[side].match(product, (), graph, at, at, _maker_of_attention)
                if here is None:
                    continue
                exponentials, read = here
                # A gradient's products read the softmax along other dimensions; their refusal does not count.
                known = found.get(exponentials)
                if known is None or (isinstance(known, Refusal) and known.code == "attention-softmax"):
                    found[exponentials] = read
                break
        yield from found.items()


_Found = tuple[Node, Match | Refusal] | None
"""The exponentials of a softmax, and the attention around it or the refusal."""


def _attention_at(graph: FlatGraph, entry: Attention, product: Node, side: int, _: object = None) -> _Found:
    """The attention whose second product is this one, which reads the softmax on this side."""
    exponentials = exponential_of_softmax(product.operands[side])
    if exponentials is None:
        return None
    difference = peel_node(exponentials.operands[0], PEEL_ROUNDING_AND_LAYOUTS)
    first = producing_dot(difference.operands[0])
    if first is None:
        return None
    found = _read(graph, entry, exponentials, first, product, side)
    if isinstance(found, Match):
        found.read_nodes()
    return exponentials, found


def _maker_of_attention(found: _Found, places: dict[Node, int]) -> MakerOf[_Found] | None:
    made_of = None if found is None else maker_of_match(found[1], places)
    return None if made_of is None else lambda graph, nodes: ((match := made_of(graph, nodes)).node, match)


def _read(
    graph: FlatGraph, entry: Attention, exponentials: Node, first: Node, second: Node, side: int
) -> Match | Refusal:
    refusal = first_refusal(_unsupported(first), _unsupported(second))
    if refusal is not None:
        return refusal
    axes: Axes | None = Axes.of(second, side)
    try:
        for _ in range(_MAX_SPLITS):
            try:
                return _Attempt(graph, entry, exponentials, second, side, axes).match()
            except AxisSplit as split:
                axes = axes.split(split)
                if axes is None:
                    break
    except NotAttention as error:
        if error.refusal is not None:
            return error.refusal
    sentence = f"what is around %{exponentials.name} is no softmax over all keys of one product's scores"
    return Refusal("attention-softmax", sentence, exponentials.name)


def _unsupported(product: Node) -> Refusal | None:
    refusal = unsupported_types(product)
    is_exact = product.proto.precision_config.algorithm in _ALGORITHMS
    return None if refusal is not None and refusal.code == "precision-unsupported" and is_exact else refusal


class _Attempt:
    """One match attempt along given axes."""

    def __init__(
        self, graph: FlatGraph, entry: Attention, exponentials: Node, second: Node, side: int, axes: Axes
    ) -> None:
        self._entry, self._exponentials, self._second, self._side, self._axes = entry, exponentials, second, side, axes
        self._matched: dict[Node, None] = {second: None}
        self._softmax = Softmax(graph, axes, self._matched)

    def match(self) -> Match:
        """The match.

        Raises:
            NotAttention: it is something else.
            AxisSplit: it may be one along other axes.
        """
        exponentials, top, is_divided = self._softmax.read(self._second.operands[self._side])
        first, steps = Scores(self._axes, self._matched).read(top)
        products = match_products(first, self._second, self._side, self._axes)
        arrangement = AxisArrangement(self._axes, products)
        count, unsplittable = len(self._axes.sizes), arrangement.unsplittable
        query, key, value = (fully_peeled(view, count, unsplittable) for view in products[:3])
        query, factor = peel_scale(query)
        if factor != 1:
            # The scale may have hidden instructions that can be peeled.
            query = fully_peeled(query, count, unsplittable)
        query, key, value = (in_memory(view, lambda _: False) or view for view in (query, key, value))
        taken = simplified([ScoreStep("scale", factor), *(arrangement.legalized(step) for step in steps)])
        result = self._result(products.result, exponentials, is_divided)
        destination = with_one_inner_dimension(result, count)
        if destination is None:
            sentence = f"the heads' dimensions do not lie behind one another in %{result.node.name}"
            raise NotAttention(Refusal("dot-dimensions", sentence, result.node.name))
        read = [query.node, key.node, value.node, *(step.view.node for step in taken if step.view is not None)]
        covered = self._covered(first.node, result.node, read)
        if len(taken) > _MAX_STEPS:
            raise self._unsupported(f"the scores take {len(taken)} steps")
        for step in taken:
            if step.kind not in self._entry.score_steps:
                raise self._unsupported(f"{self._entry.kernel} has no score step of the kind {step.kind}")
        arranged = arrangement.arranged([query, key, value], taken, destination)
        return match_of_attention(self._entry, self._exponentials, *arranged, covered)

    def _unsupported(self, sentence: str) -> NotAttention:
        return NotAttention(Refusal("attention-step", sentence, self._exponentials.name))

    def _result(self, view: View, exponentials: View, is_divided: bool) -> View:
        """The furthest value that is the product under another shape, divided by the sum of exponentials."""
        best = view if is_divided else None
        path: list[Node] = []
        while len(view.node.users) == 1 and not view.node.is_live_out:
            (user,) = view.node.users
            further = follow_user(view, user, widens=best is None)
            if further is None and best is None:
                further = self._divided(view, user, exponentials)
                if further is not None:
                    self._matched.update(dict.fromkeys(path))
                    path, best = [], further
                    self._matched[user] = None
                    view = further
                    continue
            if further is None:
                break
            path.append(user)
            view = further
            if best is not None and user.opcode != "bitcast":
                self._matched.update(dict.fromkeys(path))
                path, best = [], further
        if best is None:
            sentence = f"nothing divides %{view.node.name} by the sum over all keys"
            raise NotAttention(Refusal("attention-softmax", sentence, self._second.name))
        return best

    def _divided(self, view: View, user: Node, exponentials: View) -> View | None:
        """The view behind a division by the sum of exponentials; None: `user` is something else."""
        if user.opcode not in ("divide", "multiply") or user.has_control_predecessors:
            return None
        number = user.operands.index(view.node)
        if number == 1 and user.opcode == "divide":
            return None
        found = View(user, view.dimensions, view.offset)
        if user.shape.strides != view.node.shape.strides:
            return None
        other = along_axes(operand_view(found, user.operands[1 - number]))
        total = other if other is None or user.opcode == "divide" else self._softmax.reciprocal(other)
        if total is None:
            return None
        self._softmax.check_is_sum_over_keys(total, exponentials)
        return found

    def _covered(self, first: Node, last: Node, reads: Sequence[Node]) -> tuple[Node, ...]:
        """The instructions that the call replaces: all matched ones that depend on the first product."""
        dependent = {first}
        for node in sorted(self._matched, key=lambda node: node.index):
            if any(operand in dependent for operand in node.operands):
                dependent.add(node)
        covered = [node for node in sorted(self._matched, key=lambda node: node.index) if node in dependent]
        for node in covered:
            if node.has_control_predecessors:
                raise NotAttention(Refusal("control-dependency", "the instruction has control predecessors", node.name))
            needed = None if node is last else _reader_outside(node, dependent)
            if needed is not None:
                sentence = f"%{node.name}, which the kernel keeps nowhere, is {needed}"
                raise NotAttention(Refusal("value-needed", sentence, node.name))
        for node in reads:
            if _depends(node, dependent, first.index):
                sentence = f"%{node.name} is read, and computed from the scores"
                raise NotAttention(Refusal("attention-step", sentence, node.name))
        return tuple(covered)


def _reader_outside(node: Node, inside: set[Node]) -> str | None:
    if node.is_live_out:
        return "a result of the program"
    user = next((user for user in node.users if user not in inside), None)
    return None if user is None else f"also used by %{user.name}"


def _depends(node: Node, on: set[Node], earliest: int) -> bool:
    pending, visited = [node], {node}
    while pending:
        value = pending.pop()
        if value in on:
            return True
        for operand in value.operands:
            if operand.index >= earliest and operand not in visited:
                visited.add(operand)
                pending.append(operand)
    return False
