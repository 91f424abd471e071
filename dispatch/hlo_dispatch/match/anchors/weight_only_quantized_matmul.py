"""Normalizer of weight-only quantized matmul: a dot whose weights were widened from four or eight bits.

    x @ (convert(w) · s)  =  (x @ convert(w)) · s

A scale per column becomes a post-op of the product, where it multiplies few numbers. A scale per group of the
contracted dimension multiplies each group's sum in the kernel. With any other scale the op kind is an ordinary product.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from hlo_dispatch.analysis.dot_dimensions import DotDimensions, dot_dimensions
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS, is_broadcast
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    full_view,
    operand_view,
    peel,
    peeled_views,
    project_dimensions,
    project_groups,
    with_dense_strides,
)
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.anchors.anchor import COMPUTED_TYPES, Anchor, Surroundings, unsupported_types
from hlo_dispatch.match.anchors.dot import matrix_views, merge_row_major
from hlo_dispatch.match.epilogue.operand import find_operand
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.pattern.op_kinds import QUANTIZED_WEIGHT_TYPES
from hlo_dispatch.pattern.table import AnchorKind
from hlo_dispatch.process.machine import this_machine

MAX_ROWS = 32
"""Where matrices of bf16 have units of their own, oneDNN's product of widened weights is faster with more of them."""
_GROUP_GRAIN = 16
"""Groups of which `own.narrow_product` takes a multiple only."""
_FOUR_BITS = 4


class _QuantizedOperand(NamedTuple):
    """An operand of a dot before it was widened, and its scale."""

    view: View
    scale: View | None
    """One dimension per dimension of the operand: size 1 for a broadcast, else the number of groups."""


class _Sides(NamedTuple):
    """The operand numbers of weights and source."""

    weights: int
    source: int
    quantized: _QuantizedOperand


def is_weight_only_quantized_matmul(node: Node, around: Surroundings) -> bool:
    """Whether a dot is a weight-only quantized matmul that the kernel supports."""
    return _sides(node, around.results) is not None


def normalize_weight_only_quantized_matmul(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, a dot with quantized weights, for the weight-only quantized matmul kernel."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    sides = _sides(node, around.results)
    assert sides is not None, "the op kind says so"
    dimensions = dot_dimensions(node)
    of_source, of_weights = dimensions[sides.source], dimensions[sides.weights]
    sources = matrix_views(node.operands[sides.source], [], [of_source.free, of_source.contracting], around.results)
    result, parts = node.shape.strided_dimensions, dimensions[1].first_free
    of_side = (merge_row_major(result[:parts]), merge_row_major(result[parts:]))
    rows, columns = of_side[sides.source], of_side[sides.weights]
    if not sources or rows is None or columns is None:
        return Refusal("dot-dimensions", "dimensions of the source do not lie behind one another", node.name)
    weights = _matrix(sides.quantized.view, of_weights)
    assert weights is not None, "checked by _sides"
    destination = with_dense_strides((rows, columns), (rows, columns))
    first = scales = None
    if sides.quantized.scale is not None:
        groups, channels = _matrix_of(sides.quantized.scale, of_weights)
        assert groups is not None, "checked by _sides"
        assert channels is not None, "checked by _sides"
        if groups[0] > 1:
            scales = View(sides.quantized.scale.node, with_dense_strides((groups, channels), destination))
        else:
            operand = View(sides.quantized.scale.node, with_dense_strides(((1, 1), channels), destination))
            first = PostOp("binary", "mul", "({} · {operand})", operand=operand)
    return Anchor(
        node=node,
        entry=entry,
        source=sources[-1],
        weights=View(sides.quantized.view.node, with_dense_strides(weights, weights)),
        destination=destination,
        channel=1,
        multiply_adds=rows[0] * columns[0] * weights[0][0],
        leading_post_op=first,
        scales=scales,
        formula="x @ w" if scales is None else "x @ (w · s)",
    )


def _sides(node: Node, results: AbstractSet[Node]) -> _Sides | None:
    """The roles of the operands, weights on the right if both are quantized; None: the kernel supports neither."""
    if node.proto.dot_dimension_numbers.lhs_batch_dimensions:
        return None
    dimensions = dot_dimensions(node)
    for weights in (1, 0):
        source = 1 - weights
        if node.operands[source].shape.element_type not in COMPUTED_TYPES or _is_for_tiles(node, source, results):
            continue
        quantized = _quantized_operand(node.operands[weights], results)
        if quantized is None or _matrix(quantized.view, dimensions[weights]) is None:
            continue
        if _has_supported_scale(quantized, dimensions[weights]):
            return _Sides(weights, source, quantized)
    return None


def _is_for_tiles(node: Node, source: int, results: AbstractSet[Node]) -> bool:
    """Whether a processor's units for matrices of bf16 gain more than widening all weights to bf16 costs."""
    operand, free = node.operands[source], dot_dimensions(node)[source].free
    if math.prod(operand.shape.dimensions[number] for number in free) <= MAX_ROWS:
        return False
    views = peeled_views(full_view(operand), PEEL_CONVERTS_AND_LAYOUTS, results)
    return this_machine().has_bf16_tiles and any(view.element_type == "bf16" for view in views)


def _has_supported_scale(quantized: _QuantizedOperand, dimensions: DotDimensions) -> bool:
    """Whether the kernel supports the layout of the weights' scales."""
    if quantized.scale is None:
        return True
    groups, channels = _matrix_of(quantized.scale, dimensions)
    if groups is None or channels is None:
        return False
    depth, columns = (
        math.prod(quantized.view.dimensions[number][0] for number in part)
        for part in (dimensions.contracting, dimensions.free)
    )
    return groups[0] == 1 or (depth // groups[0] % _GROUP_GRAIN == 0 and channels[0] == columns)


def _quantized_operand(operand: Node, results: AbstractSet[Node]) -> _QuantizedOperand | None:
    """The quantized operand behind converts, one scale, and instructions that only move elements."""
    view, scale = full_view(operand), None
    while True:
        node = view.node
        if node in results or not node.operands or node.proto.control_predecessor_ids:
            return None
        if node.opcode == "convert":
            kind = node.operands[0].shape.element_type
            converted = operand_view(view, node.operands[0])
            if kind not in COMPUTED_TYPES | QUANTIZED_WEIGHT_TYPES or not isinstance(converted, View):
                return None
            view = converted
            if kind in QUANTIZED_WEIGHT_TYPES:
                return _QuantizedOperand(view, scale) if _has_whole_bytes(view.node.shape) else None
        elif node.opcode == "multiply" and scale is None:
            found = _scaled(view, results)
            if found is None:
                return None
            view, scale = found
        else:
            further = peel(view, PEEL_CONVERTS_AND_LAYOUTS, results)
            if further is None:
                return None
            view = further


def _scaled(view: View, results: AbstractSet[Node]) -> tuple[View, View] | None:
    """The scaled value of a multiply, and the scale; None: neither operand is a broadcast."""
    node = view.node
    for value, other in (node.operands, node.operands[::-1]):
        if value.shape.strides != node.shape.strides or not is_broadcast(other):
            continue
        found = find_operand(node, other, COMPUTED_TYPES, lambda _: False, results.__contains__, results)
        dimensions = None if found is None else [_projected(found, node.shape, one) for one in view.dimensions]
        if found is not None and dimensions is not None and None not in dimensions:
            known = tuple(dimension for dimension in dimensions if dimension is not None)
            return View(value, view.dimensions), View(found.node, known)
    return None


def _projected(scale: View, shape: Shape, dimension: Dimension) -> Dimension | None:
    """A scale along one dimension of the value that it scales."""
    projected = project_dimensions(scale, shape, (dimension,))
    return projected[0] if projected is not None else project_groups(scale, shape, dimension)


def _has_whole_bytes(shape: Shape) -> bool:
    """Whether rows of weights end at byte boundaries; two weights of four bits share a byte."""
    if shape.element_type != "s4":
        return True
    return shape.packed_bits == _FOUR_BITS and shape.dimensions[shape.minor_to_major[0]] % 2 == 0


def _matrix(view: View, numbers: DotDimensions) -> tuple[Dimension, Dimension] | None:
    """A view as (rows, columns), one of them contiguous; None: it has no such form."""
    first, second = (
        merge_row_major([view.dimensions[number] for number in part]) for part in (numbers.contracting, numbers.free)
    )
    if first is None or second is None:
        return None
    return (first, second) if any(size == 1 or stride == 1 for size, stride in (first, second)) else None


def _matrix_of(scale: View, numbers: DotDimensions) -> tuple[Dimension | None, Dimension | None]:
    """A scale as (groups of the contracted dimension, columns), of size 1 where it is a broadcast; None: no single
    stride.
    """
    summed = [scale.dimensions[number] for number in numbers.contracting]
    # Groups of one dimension are adjacent rows; of several dimensions they may be rows far apart.
    groups = summed[0] if len(summed) == 1 else (1, 1) if all(size == 1 for size, _ in summed) else None
    return groups, merge_row_major([scale.dimensions[number] for number in numbers.free])
