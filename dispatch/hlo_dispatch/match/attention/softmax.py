"""Softmax matcher: matches exp(s - max(s)) / sum(exp(s - max(s))) upwards from the second product.

    exp(s - max(s)) / sum(exp(s - max(s)))        divided, or multiplied by a reciprocal, there or behind the product

The subtrahend must be the maximum of the same scores over all keys, although any other would give the same result. JAX
writes the maximum of it and -inf, which XLAs other than jaxlib's keep.
The kernel leaves out roundings between the steps.
"""

from __future__ import annotations

import math

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_BROADCASTS, PEEL_ROUNDING_AND_LAYOUTS, peel_node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, peel_or_split, rebase
from hlo_dispatch.match.attention.axes import KEY, Axes
from hlo_dispatch.match.attention.axis_views import NotAttention, along_axes, operand_along_axes, peeled_along_axes
from hlo_dispatch.match.attention.reductions import match_reduction

_PEEL_SUMS = PEEL_ROUNDING_AND_LAYOUTS | PEEL_BROADCASTS


def exponential_of_softmax(node: Node) -> Node | None:
    """The exponential from which a product's operand is computed, where it looks like a softmax's result."""
    top = _peeled(node)
    if top.opcode in ("multiply", "divide"):
        numerators = top.operands if top.opcode == "multiply" else top.operands[:1]
        top = next(
            (found for o in numerators if (found := _peeled(o)).opcode == "exponential"),
            top,
        )
    is_shifted = top.opcode == "exponential" and _peeled(top.operands[0]).opcode == "subtract"
    return top if is_shifted else None


def _peeled(node: Node) -> Node:
    return peel_node(node, PEEL_ROUNDING_AND_LAYOUTS)


class Softmax:
    """Matcher of one softmax along given axes."""

    def __init__(self, graph: FlatGraph, axes: Axes, matched: dict[Node, None]) -> None:
        """`matched` collects the matched instructions."""
        self._graph, self._axes, self._matched = graph, axes, matched

    def read(self, weights: Node) -> tuple[View, View, bool]:
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
        difference = self._peeled_down(operand_along_axes(exponentials, exponentials.node.operands[0]))[-1]
        if difference.node.opcode != "subtract":
            raise NotAttention
        self._note(difference)
        scores = self._peeled_down(operand_along_axes(difference, difference.node.operands[0]))
        self._check_is_maximum_over_keys(operand_along_axes(difference, difference.node.operands[1]), scores)
        return exponentials, scores[-1], is_divided

    def _divided(self, top: View) -> tuple[View, View]:
        """The exponentials and their divisor."""
        self._note(top)
        for number in (0, 1) if top.node.opcode == "multiply" else (0,):
            if _peeled(top.node.operands[number]).opcode != "exponential":
                continue
            exponentials = self._peeled_down(operand_along_axes(top, top.node.operands[number]))[-1]
            other = operand_along_axes(top, top.node.operands[1 - number])
            total = self.reciprocal(other) if top.node.opcode == "multiply" else other
            if total is not None:
                return exponentials, total
        raise NotAttention

    def reciprocal(self, view: View) -> View | None:
        """The divisor where the view is one over it; None: it is something else."""
        path = peeled_along_axes(view, _PEEL_SUMS)
        last = path[-1]
        if last.node.opcode != "divide" or scalar_constant(last.node.operands[0]) != 1:
            return None
        self._note(*path)
        return operand_along_axes(last, last.node.operands[1])

    def check_is_sum_over_keys(self, total: View, exponentials: View) -> None:
        """Checks that `total` is the sum of `exponentials` over all keys.

        Raises:
            NotAttention: it is not.
        """
        self._check_is_reduction_over_keys(total, [exponentials], "add")

    def _check_is_maximum_over_keys(self, peak: View, scores: list[View]) -> None:
        self._check_is_reduction_over_keys(self._without_bound(peak), scores, "maximum")

    def _without_bound(self, peak: View) -> View:
        """What the maximum of a value and -inf is."""
        path = peeled_along_axes(peak, _PEEL_SUMS)
        last = path[-1]
        for number in (0, 1) if last.node.opcode == "maximum" else ():
            if scalar_constant(last.node.operands[1 - number]) == -math.inf:
                self._note(*path)
                return operand_along_axes(last, last.node.operands[number])
        return peak

    def _check_is_reduction_over_keys(self, result: View, of: list[View], word: str) -> None:
        """Checks that `result` is a reduction over all keys of one of the views `of`."""
        path = peeled_along_axes(result, _PEEL_SUMS)
        found = match_reduction(path[-1].node, self._graph, word)
        if found is None:
            raise NotAttention
        source = self._reduction_source(path[-1], found.source, found.dimensions, found.kept)
        known = {view.node: view for view in of}
        steps: list[View] = [source]
        while steps[-1].node not in known:
            further = along_axes(peel_or_split(steps[-1], PEEL_ROUNDING_AND_LAYOUTS))
            if further is None:
                raise NotAttention
            steps.append(further)
        if not self._axes.is_same_value(steps[-1], known[steps[-1].node]):
            raise NotAttention
        self._note(*path, *steps)
        self._matched.update(dict.fromkeys(found.nodes))

    def _reduction_source(self, result: View, source: Node, reduced: tuple[int, ...], kept: tuple[int, ...]) -> View:
        """The view of the reduction's source: the result's axes, and the keys along the reduced dimensions."""
        shape = source.shape
        found = along_axes(rebase(result, source, [shape.strides[number] for number in kept]))
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
        return View(source, tuple(dimensions[: len(self._axes.sizes)]), found.offset)

    def _peeled_down(self, view: View) -> list[View]:
        found = peeled_along_axes(view, PEEL_ROUNDING_AND_LAYOUTS)
        self._note(*found[:-1])
        return found

    def _note(self, *views: View) -> None:
        self._matched.update((view.node, None) for view in views)
