"""Normalizer of weight-only quantized matmul: a dot whose weights were widened from four or eight bits.

    x @ (convert(w) · s)  =  (x @ convert(w)) · s
    x @ ((convert(w) - z) · s)  =  x @ (convert(w) · s) - sum(x) @ (z · s)

A scale per column becomes a post-op of the product, where it multiplies few numbers. A scale per group of the
contracted dimension multiplies each group's sum in the kernel, and so do zero points. With any other scale the op kind
is an ordinary product. A source that is rounded to eight bits (rounded_source.py) is rounded by the kernel, which
multiplies integers then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from hlo_dispatch.analysis.dot_dimensions import DotDimensions, dot_dimensions
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import Dimension, View, full_view, peeled_views, with_dense_strides
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import COMPUTED_TYPES, Anchor, Surroundings, unsupported_types
from hlo_dispatch.match.anchors.dot import matrix_views, merge_row_major
from hlo_dispatch.match.anchors.quantized_operand import QuantizedOperand, groups_and_columns, quantized_operand
from hlo_dispatch.match.anchors.rounded_source import RoundedSource, rounded_source
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.pattern.table import AnchorKind

MAX_ROWS = 32
"""Where matrices of bf16 have units of their own, oneDNN's product of widened weights is faster with more of them."""
_GROUP_GRAIN = 16
"""Groups of which `own.narrow_product` takes a multiple only."""
_MOST_IN_GROUP = 1 << 16
"""Numbers of a rounded source with one scale, whose products it adds up in 32 bits."""
_PAIR = 2
"""Numbers of a block that lie in order."""


class _Sides(NamedTuple):
    """The operand numbers of weights and source."""

    weights: int
    source: int
    quantized: QuantizedOperand


def is_weight_only_quantized_matmul(node: Node, around: Surroundings) -> bool:
    """Whether a dot is a weight-only quantized matmul that the kernel supports."""
    return _sides(node, around) is not None


def normalize_weight_only_quantized_matmul(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, a dot with quantized weights, for the weight-only quantized matmul kernel."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    sides = _sides(node, around)
    assert sides is not None, "the op kind says so"
    dimensions = dot_dimensions(node)
    of_source, of_weights = dimensions[sides.source], dimensions[sides.weights]
    sources = matrix_views(node.operands[sides.source], (), (of_source.free, of_source.contracting), around.results)
    result, parts = node.shape.strided_dimensions, dimensions[1].first_free
    of_side = (merge_row_major(result[:parts]), merge_row_major(result[parts:]))
    rows, columns = of_side[sides.source], of_side[sides.weights]
    if not sources or rows is None or columns is None:
        return Refusal("dot-dimensions", "dimensions of the source do not lie behind one another", node.name)
    weights = _matrix(sides.quantized.view, of_weights)
    assert weights is not None, "checked by _sides"
    destination = with_dense_strides((rows, columns), (rows, columns))
    first = scales = zeros = None
    if sides.quantized.scale is not None:
        scales = _grouped(sides.quantized, sides.quantized.scale, of_weights, destination)
        if scales.sizes[0] == 1:
            first, scales = PostOp("binary", "mul", "({} · {operand})", operand=scales), None
    rounded = _rounded(node, sides, scales, around)
    if sides.quantized.zeros is not None:
        zeros = _grouped(sides.quantized, sides.quantized.zeros, of_weights, destination)
    return Anchor(
        node=node,
        entry=entry,
        source=sources[-1] if rounded is None else rounded.view,
        weights=View(sides.quantized.view.node, with_dense_strides(weights, weights)),
        destination=destination,
        channel=1,
        multiply_adds=rows[0] * columns[0] * weights[0][0],
        leading_post_op=first,
        attributes=_integer_attributes(sides.quantized, rounded),
        scales=scales,
        zeros=zeros,
        formula=_formula(sides.quantized, scales, rounded),
    )


def _rounded(node: Node, sides: _Sides, scales: View | None, around: Surroundings) -> RoundedSource | None:
    """What the source rounds to eight bits, where the kernel does that itself; None: it is multiplied as it is."""
    quantized = sides.quantized
    if quantized.zero or quantized.zeros is not None or quantized.block:
        return None
    dimensions = dot_dimensions(node)[sides.source]
    rounded = rounded_source(node.operands[sides.source], dimensions, around.graph, around.results)
    if rounded is None or rounded.group > _MOST_IN_GROUP:
        return None
    group = rounded.view.sizes[1] // (1 if scales is None else scales.sizes[0])
    return None if group % rounded.group else rounded


def _integer_attributes(quantized: QuantizedOperand, rounded: RoundedSource | None) -> dict[str, Any]:
    """What the weights' bytes mean, where they are not the numbers themselves, and how the source is rounded."""
    attributes: dict[str, Any] = {"weights_zero": quantized.zero} if quantized.zero else {}
    attributes |= {} if rounded is None else {"src_group": rounded.group}
    return attributes | ({"weights_block": quantized.block} if quantized.block else {})


def _formula(quantized: QuantizedOperand, scales: View | None, rounded: RoundedSource | None) -> str:
    source = "x" if rounded is None else "round(x)"
    weights = "(w - z)" if quantized.zero or quantized.zeros is not None else "w"
    return f"{source} @ {weights}" if scales is None else f"{source} @ ({weights} · s)"


def _grouped(
    quantized: QuantizedOperand, scale: View, dimensions: DotDimensions, destination: Sequence[Dimension]
) -> View:
    """Scales or zero points as (groups, columns)."""
    groups, channels = groups_and_columns(scale, quantized.view.sizes, dimensions)
    assert groups is not None, "checked by _sides"
    assert channels is not None, "checked by _sides"
    return View(scale.node, with_dense_strides((groups, channels), destination))


def _sides(node: Node, around: Surroundings) -> _Sides | None:
    """The roles of the operands, weights on the right if both are quantized; None: the kernel supports neither."""
    if node.proto.dot_dimension_numbers.lhs_batch_dimensions:
        return None
    for weights in (1, 0):
        source = 1 - weights
        quantized = quantized_operand(node.operands[weights], around.results)
        if quantized is None or node.operands[source].shape.element_type not in COMPUTED_TYPES:
            continue
        if _is_supported(quantized, dot_dimensions(node)[weights]) and not _is_for_tiles(node, source, around):
            return _Sides(weights, source, quantized)
    return None


def _is_for_tiles(node: Node, source: int, around: Surroundings) -> bool:
    """Whether the processor's units for matrices of bf16 gain more than widening all weights to bf16 costs."""
    if not around.machine.has_bf16_tiles:
        return False
    operand, free = node.operands[source], dot_dimensions(node)[source].free
    if math.prod(operand.shape.dimensions[number] for number in free) <= MAX_ROWS:
        return False
    views = peeled_views(full_view(operand), PEEL_CONVERTS_AND_LAYOUTS, around.results)
    return any(view.element_type == "bf16" for view in views)


def _is_supported(quantized: QuantizedOperand, dimensions: DotDimensions) -> bool:
    """Whether the kernel supports the layout of the weights, their scales and zero points."""
    matrix = _matrix(quantized.view, dimensions)
    if matrix is None:
        return False
    (depth, distance), (columns, _) = matrix
    if quantized.block > _PAIR and distance != 1:
        return False
    counts: set[int] = set()
    for scale in (quantized.scale, quantized.zeros):
        groups, channels = (
            ((1, 1), (1, 1)) if scale is None else groups_and_columns(scale, quantized.view.sizes, dimensions)
        )
        if groups is None or channels is None:
            return False
        counts.add(groups[0])
        if groups[0] > 1 and (channels[0] != columns or depth // groups[0] % max(_GROUP_GRAIN, quantized.block)):
            return False
    # Scales and zero points have the same groups, or one has none.
    return len(counts - {1}) <= 1


def _matrix(view: View, numbers: DotDimensions) -> tuple[Dimension, Dimension] | None:
    """A view as (rows, columns), one of them contiguous; None: it has no such form."""
    first, second = (
        merge_row_major([view.dimensions[number] for number in part]) for part in (numbers.contracting, numbers.free)
    )
    if first is None or second is None:
        return None
    return (first, second) if any(size == 1 or stride == 1 for size, stride in (first, second)) else None
