"""Softmax matcher: matches exp(s - max(s)) / sum(exp(s - max(s))) upwards from the second product.

    exp(s - max(s)) / sum(exp(s - max(s)))        divided, or multiplied by a reciprocal, there or behind the product

The subtrahend must be the maximum of the same scores over all keys, although any other would give the same result.
The kernel leaves out roundings between the steps.
"""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.strided_view import PEEL_LAYOUTS
from hlo_dispatch.match.attention.axes import KEY, Axes
from hlo_dispatch.match.attention.placement import (
    PEEL_BROADCASTS,
    PEEL_ROUNDING,
    NotAttention,
    Placement,
    operand_placement,
    peel_node,
    peel_placement,
    peeled_placements,
    rebase_placement,
)
from hlo_dispatch.match.attention.reductions import match_reduction
from hlo_dispatch.match.elementwise_region import scalar_constant

PEELED_OPCODES = PEEL_LAYOUTS | PEEL_ROUNDING


def exponential_of_softmax(node: Node) -> Node | None:
    """The exponential from which a product's operand is computed, where it looks like a softmax's result."""
    top = peel_node(node, PEELED_OPCODES)
    if top.opcode in ("multiply", "divide"):
        numerators = top.operands if top.opcode == "multiply" else top.operands[:1]
        top = next((found for o in numerators if (found := peel_node(o, PEELED_OPCODES)).opcode == "exponential"), top)
    is_shifted = top.opcode == "exponential" and peel_node(top.operands[0], PEELED_OPCODES).opcode == "subtract"
    return top if is_shifted else None


class Softmax:
    """Matcher of one softmax along given axes."""

    def __init__(self, graph: FlatGraph, axes: Axes, matched: dict[Node, None]) -> None:
        """`matched` collects the matched instructions."""
        self._graph, self._axes, self._matched = graph, axes, matched

    def read(self, weights: Node) -> tuple[Placement, Placement, bool]:
        """The exponentials, the scores, and whether the exponentials are divided by their sum in front of the product.

        Raises:
            NotAttention: it is no softmax over all keys.
            AxisSplit: it may be, along other axes.
        """
        top = self._peeled_down(self._axes.start(weights))[-1]
        exponentials, is_divided = top, top.node.opcode != "exponential"
        if is_divided:
            exponentials, total = self._divided(top)
            self.check_is_sum_over_keys(total, exponentials)
        self._note(exponentials)
        difference = self._peeled_down(self._operand(exponentials, 0))[-1]
        if difference.node.opcode != "subtract":
            raise NotAttention
        self._note(difference)
        scores = self._peeled_down(self._operand(difference, 0))
        self._check_is_maximum_over_keys(self._operand(difference, 1), scores)
        return exponentials, scores[-1], is_divided

    def _divided(self, top: Placement) -> tuple[Placement, Placement]:
        """The exponentials and their divisor."""
        self._note(top)
        for number in (0, 1) if top.node.opcode == "multiply" else (0,):
            if peel_node(top.node.operands[number], PEELED_OPCODES).opcode != "exponential":
                continue
            exponentials = self._peeled_down(self._operand(top, number))[-1]
            other = self._operand(top, 1 - number)
            total = self.reciprocal(other) if top.node.opcode == "multiply" else other
            if total is not None:
                return exponentials, total
        raise NotAttention

    def reciprocal(self, placement: Placement) -> Placement | None:
        """The divisor where the view is one over it; None: it is something else."""
        path = peeled_placements(placement, PEELED_OPCODES | PEEL_BROADCASTS)
        last = path[-1]
        if last.node.opcode != "divide" or scalar_constant(last.node.operands[0]) != 1:
            return None
        self._note(*path)
        return self._operand(last, 1)

    def check_is_sum_over_keys(self, total: Placement, exponentials: Placement) -> None:
        """Checks that `total` is the sum of `exponentials` over all keys.

        Raises:
            NotAttention: it is not.
        """
        self._check_is_reduction_over_keys(total, [exponentials], "add")

    def _check_is_maximum_over_keys(self, peak: Placement, scores: list[Placement]) -> None:
        self._check_is_reduction_over_keys(peak, scores, "maximum")

    def _check_is_reduction_over_keys(self, result: Placement, of: list[Placement], word: str) -> None:
        """Checks that `result` is a reduction over all keys of one of the views `of`."""
        path = peeled_placements(result, PEELED_OPCODES | PEEL_BROADCASTS)
        found = match_reduction(path[-1].node, self._graph, word)
        if found is None:
            raise NotAttention
        source = self._reduction_source(path[-1], found.source, found.dimensions, found.kept)
        known = {placement.node: placement for placement in of}
        steps: list[Placement] = [source]
        while steps[-1].node not in known:
            further = peel_placement(steps[-1], PEELED_OPCODES)
            if further is None:
                raise NotAttention
            steps.append(further)
        if not self._axes.is_same_value(steps[-1], known[steps[-1].node]):
            raise NotAttention
        self._note(*path, *steps)
        self._matched.update(dict.fromkeys(found.nodes))

    def _reduction_source(
        self, result: Placement, source: Node, reduced: tuple[int, ...], kept: tuple[int, ...]
    ) -> Placement:
        """The view of the reduction's source: the result's axes, and the keys along the reduced dimensions."""
        shape = source.shape
        found = rebase_placement(result, source, [shape.strides[number] for number in kept])
        keys = self._axes.keys_over([shape.dimensions[n] for n in reduced], [shape.strides[n] for n in reduced])
        if found is None or keys is None or any(found.dimensions[axis][1] for axis in keys):
            raise NotAttention
        dimensions = list(found.dimensions)
        for axis, stride in keys.items():
            dimensions[axis] = (dimensions[axis][0], stride)
        # Dimensions behind the axes belong to the second product and must not vary in the sum.
        if any(stride for _, stride in dimensions[len(self._axes.sizes) :]):
            raise NotAttention
        if any(axis not in keys for axis in self._axes.of_kind(KEY)):
            raise NotAttention
        return Placement(source, tuple(dimensions[: len(self._axes.sizes)]), found.offset)

    def _peeled_down(self, placement: Placement) -> list[Placement]:
        found = peeled_placements(placement, PEELED_OPCODES)
        self._note(*found[:-1])
        return found

    def _operand(self, placement: Placement, number: int) -> Placement:
        found = operand_placement(placement, placement.node.operands[number])
        if found is None:
            raise NotAttention
        return found

    def _note(self, *placements: Placement) -> None:
        self._matched.update((placement.node, None) for placement in placements)
