"""Sources of a dot that are rounded to eight bits at run time, in groups of what is summed up (dynamic quantization).

    round(x · (127 / m)) · (m · (1 / 127)),    m = max(max |x| over a group, 2^-100)

in f32, as freezing/dynamic_quantization.py writes it. A kernel that multiplies integers computes the same of x itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from hlo_dispatch.analysis.dot_dimensions import DotDimensions
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, PEEL_CONVERTS_AND_LAYOUTS, PEEL_LAYOUTS, peel_node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import Dimension, View, full_view, operand_view, peel, peeled_views
from hlo_dispatch.match.anchors.dot import merge_row_major
from hlo_dispatch.match.anchors.quantized_operand import groups_and_columns, with_broadcast
from hlo_dispatch.match.reduction import reduces, windows_before

_LARGEST = 127.0
_OF_LARGEST = float(np.float32(1 / _LARGEST))
_SMALLEST = 2.0**-100


class RoundedSource(NamedTuple):
    """What is rounded, and how."""

    view: View
    """(rows, what is summed up), row-major."""
    group: int
    """Numbers of a row with one scale."""


def rounded_source(
    operand: Node, dimensions: DotDimensions, graph: FlatGraph, results: AbstractSet[Node]
) -> RoundedSource | None:
    """What a dot's operand rounds; None: it rounds nothing.

    Args:
        results: results of calls, in front of which values may not exist.
    """
    rounded, scale = _scaled(full_view(operand), results)
    if rounded is None or scale is None:
        return None
    rounded = _peeled(rounded, results)
    if rounded.node.opcode != "round-nearest-even":
        return None
    inner = operand_view(rounded, rounded.node.operands[0])
    value, inverse = _scaled(inner, results) if isinstance(inner, View) else (None, None)
    if value is None or inverse is None or scale.dimensions != inverse.dimensions:
        return None
    largest = _largest(scale.node, inverse.node)
    groups = None if largest is None else _groups(largest, graph, results)
    return None if groups is None else _row_major(value, scale, groups, dimensions, results)


def _peeled(view: View, results: AbstractSet[Node]) -> View:
    while (found := peel(view, PEEL_LAYOUTS, results)) is not None:
        view = found
    return view


def _scaled(view: View, results: AbstractSet[Node]) -> tuple[View, View] | tuple[None, None]:
    """(value, scale) of a product with a broadcast."""
    view = _peeled(view, results)
    if view.node.opcode != "multiply" or view.node in results:
        return None, None
    return with_broadcast(view, results)


def _largest(scale: Node, inverse: Node) -> Node | None:
    """m of `scale`, m · (1 / 127), and of its inverse, 127 / m; None: they are something else."""
    scale, inverse = (peel_node(node, PEEL_BITCASTS) for node in (scale, inverse))
    if scale.opcode != "multiply" or inverse.opcode != "divide" or scalar_constant(inverse.operands[0]) != _LARGEST:
        return None
    if scale.shape.strides != inverse.shape.strides:
        return None
    found = peel_node(inverse.operands[1], PEEL_BITCASTS)
    for value, factor in (scale.operands, scale.operands[::-1]):
        if scalar_constant(factor) == _OF_LARGEST and peel_node(value, PEEL_BITCASTS) is found:
            return found
    return None


class _Measured(NamedTuple):
    """Of the values whose largest is found: a view, with the dimensions of its groups apart from those within one."""

    view: View
    left: list[int]
    """Numbers of the dimensions that the maxima have, too."""
    within: list[int]


def _groups(largest: Node, graph: FlatGraph, results: AbstractSet[Node]) -> _Measured | None:
    """What the maxima are of; None: they are no maxima of absolute values."""
    if largest.opcode != "maximum":
        return None
    for value, bound in (largest.operands, largest.operands[::-1]):
        reduction = peel_node(value, PEEL_BITCASTS)
        if scalar_constant(bound) == _SMALLEST and reduction.opcode == "reduce":
            break
    else:
        return None
    if not reduces(reduction, graph, "maximum"):
        return None
    within = reduction.proto.dimensions[:]
    source = (reduction, *windows_before(reduction, graph, "maximum"))[-1].operands[0]
    absolute = _peeled(full_view(source), results)
    if absolute.node.opcode != "abs" or {largest, reduction, absolute.node} & results:
        return None
    inner = operand_view(absolute, absolute.node.operands[0])
    left = [number for number in range(len(source.shape.dimensions)) if number not in within]
    return _Measured(inner, left, within) if isinstance(inner, View) else None


def _row_major(
    value: View, scale: View, groups: _Measured, dimensions: DotDimensions, results: AbstractSet[Node]
) -> RoundedSource | None:
    """The rounded matrix, where it and its groups are row-major, and the groups are of what is summed up."""
    of_groups = {view.node: view for view in peeled_views(groups.view, PEEL_CONVERTS_AND_LAYOUTS, results)}
    for view in reversed(peeled_views(value, PEEL_CONVERTS_AND_LAYOUTS, results)):
        if view.node not in of_groups:
            continue
        found = of_groups[view.node]
        rows, depth = (_merged(view, numbers) for numbers in (dimensions.free, dimensions.contracting))
        count, scaled_rows = groups_and_columns(scale, value.sizes, dimensions)
        left, within = (_merged(found, numbers) for numbers in (groups.left, groups.within))
        if rows is None or depth is None or count is None or view.offset or found.offset:
            return None
        group = depth[0] // count[0]
        lie_as_wanted = (
            _is(rows, (rows[0], depth[0])),
            _is(depth, (count[0] * group, 1)),
            _is(scaled_rows, (rows[0], count[0])),
            _is(count, (count[0], 1)),
            _is(left, (rows[0] * count[0], group)),
            _is(within, (group, 1)),
        )
        if not all(lie_as_wanted):
            return None
        return RoundedSource(View(view.node, ((rows[0], depth[0]), (depth[0], 1))), group)
    return None


def _merged(view: View, numbers: Sequence[int]) -> Dimension | None:
    return merge_row_major([view.dimensions[number] for number in numbers])


def _is(dimension: Dimension | None, wanted: Dimension) -> bool:
    """Whether a dimension has this size, and this stride unless it has one element."""
    return dimension == wanted or (dimension is not None and dimension[0] == wanted[0] == 1)
