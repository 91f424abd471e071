"""Argmax: a reduction of numbers together with their places, recognized by what its computation does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.match.dependency_trace import compared_by_value
from hlo_dispatch.match.elementwise_points import ElementwisePoints, NotElementwise

_NUMBERS = (np.nan, -np.inf, -2.0, -0.0, 0.0, 1.0, np.inf)
_PLACES = (0.0, 1.0, 5.0)
_VALUE_AND_PLACE = 2


def why_no_argmax(part: Node, graph: FlatGraph) -> str:
    """Why the value, an element of a tuple, is not where the maximum along a dimension is; empty: it is.

    Of equal numbers the first counts, and the first NaN is larger than every number.
    """
    reduction = part.operands[0]
    if reduction.opcode != "reduce" or len(reduction.operands) != 2 * _VALUE_AND_PLACE:
        return "no two arrays are reduced"
    if part.proto.tuple_index != 1 or part.shape.element_type != "s32":
        return "its result is none of s32"
    dimensions = tuple(reduction.proto.dimensions[:])
    if len(dimensions) != 1 or not _counts(reduction.operands[1], dimensions[0]):
        return "what is reduced with the numbers does not count along one dimension"
    start = [scalar_constant(operand) for operand in reduction.operands[_VALUE_AND_PLACE:]]
    if start != [-math.inf, 0]:
        return "it does not start from -inf at place 0"
    is_first = compared_by_value(_takes_the_first_largest, reduction, graph)
    return "" if is_first else "its computation takes another one"


def _counts(node: Node, dimension: int) -> bool:
    """Whether the elements are their own numbers along a dimension."""
    if node.opcode == "broadcast":
        named = list(node.proto.dimensions[:])
        return dimension in named and _counts(node.operands[0], named.index(dimension))
    return node.opcode == "iota" and list(node.proto.dimensions[:]) == [dimension]


def _takes_the_first_largest(reduction: Node, graph: FlatGraph) -> bool:
    """Whether the computation gives, of what was found so far and another number, the larger one and its place."""
    called = reduction.proto.called_computation_ids[0]
    if called not in graph.takes_first_largest:
        computation = FlatGraph(graph.module, graph.module.computations[called])
        graph.takes_first_largest[called] = _gives_the_first_largest(computation)
        computation.break_reference_cycles()
    return graph.takes_first_largest[called]


def _gives_the_first_largest(called: FlatGraph) -> bool:
    axes = (_NUMBERS, _PLACES, _NUMBERS, _PLACES)
    given = [axis.ravel() for axis in np.meshgrid(*(np.array(axis) for axis in axes), indexing="ij")]
    value, place, other, other_place = given
    is_larger = (value > other) | np.isnan(value)
    is_first = is_larger | ((value == other) & (place < other_place))
    expected = np.where(is_larger, value, other), np.where(is_first, place, other_place)
    found = _evaluated(called, given)
    return found is not None and all(
        np.array_equal(one, other, equal_nan=True) for one, other in zip(found, expected, strict=True)
    )


def _evaluated(computation: FlatGraph, given: list[Any]) -> list[Any] | None:
    """The elements of the tuple that a computation of scalars gives for these parameters, in float64."""
    root = computation.root
    if root.opcode != "tuple":
        return None
    offsets = np.zeros(1, np.int64)
    try:
        points = ElementwisePoints([(one, offsets) for one in root.operands], lambda node: node.opcode == "parameter")
    except NotElementwise:
        return None
    return points.evaluate({source: given[source.node.proto.parameter_number] for source in points.sources})
