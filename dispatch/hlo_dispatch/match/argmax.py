"""Argmax and argmin: a reduction of numbers together with their places, recognized by what its computation does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.match.dependency_trace import compared_by_value
from hlo_dispatch.match.elementwise_points import ElementwisePoints, NotElementwise
from hlo_dispatch.pattern.constraints import PLACES

_NUMBERS = (np.nan, -np.inf, -2.0, -0.0, 0.0, 1.0, np.inf)
_INTEGERS = (-(2.0**31), -2.0, 0.0, 1.0, 2.0**31 - 1)
_WORST: Mapping[str, tuple[float, float]] = {"s32": (_INTEGERS[0], _INTEGERS[-1])}
"""Element type → what every element is at least, and at most; floats: the infinities."""
_SOME_PLACES = (0.0, 1.0, 5.0)
_VALUE_AND_PLACE = 2


def starts_for(word: str, part: Node) -> bool:
    """Whether the value is a part of a reduction that starts as that of this word does, argmax or argmin."""
    reduction = part.operands[0]
    if reduction.opcode != "reduce" or len(reduction.operands) != 2 * _VALUE_AND_PLACE:
        return False
    worst = _WORST.get(reduction.operands[0].shape.element_type, (-math.inf, math.inf))[word == "argmin"]
    return scalar_constant(reduction.operands[_VALUE_AND_PLACE]) == worst


def why_no_place(word: str, part: Node, graph: FlatGraph) -> str:
    """Why the value, an element of a tuple, is not where an extremum along a dimension is; empty: it is.

    Of equal numbers the first counts, and the first NaN before every number.

    Args:
        word: argmax or argmin, for which the reduction starts.
    """
    reduction = part.operands[0]
    if part.proto.tuple_index != 1 or part.shape.element_type not in ("s32", "s64"):
        return "its result is none of s32 or s64"
    dimensions = tuple(reduction.proto.dimensions[:])
    if len(dimensions) != 1 or not _counts(reduction.operands[1], dimensions[0]):
        return "what is reduced with the numbers does not count along one dimension"
    if not _is_0(reduction.operands[-1]):
        return "it does not start at place 0"
    is_first = compared_by_value(_TAKES_THE_FIRST[word], reduction, graph)
    return "" if is_first else "its computation takes another one"


def _is_0(node: Node) -> bool:
    is_wide = node.opcode == "constant" and node.shape.element_type == "s64"
    return node.proto.literal.s64s[:] == [0] if is_wide else scalar_constant(node) == 0


def _counts(node: Node, dimension: int) -> bool:
    """Whether the elements are their own numbers along a dimension."""
    if node.opcode == "broadcast":
        named = list(node.proto.dimensions[:])
        return dimension in named and _counts(node.operands[0], named.index(dimension))
    return node.opcode == "iota" and list(node.proto.dimensions[:]) == [dimension]


def _takes_the_first(word: str, reduction: Node, graph: FlatGraph) -> bool:
    """Whether the computation gives, of what was found so far and another number, the better one and its place."""
    called = reduction.proto.called_computation_ids[0]
    key = called, word
    if key not in graph.takes_first:
        computation = FlatGraph(graph.module, graph.module.computations[called])
        numbers = _INTEGERS if reduction.operands[0].shape.element_type in _WORST else _NUMBERS
        graph.takes_first[key] = _gives_the_first(word, computation, numbers)
        computation.break_reference_cycles()
    return graph.takes_first[key]


_TAKES_THE_FIRST = {word: partial(_takes_the_first, word) for word in PLACES}
"""Always the same functions, by which what a walk has read is compared."""


def _gives_the_first(word: str, called: FlatGraph, numbers: tuple[float, ...]) -> bool:
    axes = (numbers, _SOME_PLACES, numbers, _SOME_PLACES)
    given = [axis.ravel() for axis in np.meshgrid(*(np.array(axis) for axis in axes), indexing="ij")]
    value, place, other, other_place = given
    is_better = (value > other if word == "argmax" else value < other) | np.isnan(value)
    is_first = is_better | ((value == other) & (place < other_place))
    expected = np.where(is_better, value, other), np.where(is_first, place, other_place)
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
