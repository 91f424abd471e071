"""A dot whose weights were widened from eight bits, for a kernel that reads them as they were.

    x @ (convert(w) · s)  =  (x @ convert(w)) · s

A scale of the columns goes behind the product, where it is multiplied with few numbers. One that differs along what is
summed up stays where it is, and the product is one like others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.match.anchors.anchor import COMPUTED_TYPES, Anchor, unsupported_types
from hlo_dispatch.match.anchors.dot import free_dimensions, merged, readings
from hlo_dispatch.match.epilogue.operand import find_operand
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.match.strided import Dimension, View, dense, look_through, project, restate, whole
from hlo_dispatch.pattern.readings import NARROW_TYPES
from hlo_dispatch.pattern.table import AnchorKind

MOST_ROWS = 32
"""More of them a product of widened weights computes as fast; `own.narrow_product` refuses them."""
_REARRANGING = frozenset(("bitcast", "convert", "copy", "transpose"))


class _NarrowOperand(NamedTuple):
    """An operand of a dot before it was widened, and what it was multiplied with then."""

    view: View
    scale: View | None
    """With a dimension for each of the operand's, of size 1 where it repeats."""


class _Sides(NamedTuple):
    """Which operand is what, as numbers."""

    weights: int
    source: int
    narrow: _NarrowOperand


def is_narrow_product(node: Node) -> bool:
    """Whether the kernel for narrow weights can be asked for a dot."""
    return _sides(node) is not None


def read_narrow_product(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Describe `node`, an HLO dot with narrow weights, for the kernel of those."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    sides = _sides(node)
    assert sides is not None, "it was asked whether it is one"
    contracting, free = _contracting(node), free_dimensions(node)
    sources = readings(node.operands[sides.source], [], [free[sides.source], contracting[sides.source]])
    result = whole(node).dimensions
    parts = len(free[0])
    of_side = (merged(result[:parts]), merged(result[parts:]))
    rows, columns = of_side[sides.source], of_side[sides.weights]
    if not sources or rows is None or columns is None:
        return Refusal("dot-dimensions", "dimensions of the source do not lie behind one another", node.name)
    weights = _matrix(sides.narrow.view, contracting[sides.weights], free[sides.weights])
    assert weights is not None, "they were looked at"
    destination = dense((rows, columns), (rows, columns))
    first = None
    if sides.narrow.scale is not None:
        scale = _per_channel(sides.narrow.scale, contracting[sides.weights], free[sides.weights])
        assert scale is not None, "it was looked at"
        operand = View(sides.narrow.scale.node, dense(((1, 1), scale), destination))
        first = PostOp("binary", "mul", "({} · {operand})", operand=operand)
    return Anchor(
        node=node,
        entry=entry,
        source=sources[-1],
        weights=View(sides.narrow.view.node, dense(weights, weights)),
        destination=destination,
        channel=1,
        multiply_adds=rows[0] * columns[0] * weights[0][0],
        first=first,
        formula="x @ w",
    )


def _sides(node: Node) -> _Sides | None:
    """The weights, on the right if both are narrow; None where there are none that the kernel reads."""
    if node.proto.dot_dimension_numbers.lhs_batch_dimensions:
        return None
    contracting, free = _contracting(node), free_dimensions(node)
    for weights in (1, 0):
        source = 1 - weights
        rows = math.prod(node.operands[source].shape.dimensions[number] for number in free[source])
        if rows > MOST_ROWS or node.operands[source].shape.element_type not in COMPUTED_TYPES:
            continue
        narrow = _narrow(node.operands[weights])
        if narrow is None or _matrix(narrow.view, contracting[weights], free[weights]) is None:
            continue
        scale = narrow.scale
        if scale is None or _per_channel(scale, contracting[weights], free[weights]) is not None:
            return _Sides(weights, source, narrow)
    return None


def _contracting(node: Node) -> tuple[list[int], list[int]]:
    numbers = node.proto.dot_dimension_numbers
    return list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)


def _narrow(operand: Node) -> _NarrowOperand | None:
    """The operand of eight bits behind converts, one scale, and what only moves elements."""
    view, scale = whole(operand), None
    while True:
        node = view.node
        if node.is_result or not node.operands or node.proto.control_predecessor_ids:
            return None
        if node.opcode == "convert":
            kind = node.operands[0].shape.element_type
            dimensions = restate(view.dimensions, node.shape, node.operands[0].shape.strides)
            if kind not in COMPUTED_TYPES | NARROW_TYPES or dimensions is None:
                return None
            view = View(node.operands[0], dimensions)
            if kind in NARROW_TYPES:
                return _NarrowOperand(view, scale)
        elif node.opcode == "multiply" and scale is None:
            found = _scaled(view)
            if found is None:
                return None
            view, scale = found
        else:
            further = look_through(view, _REARRANGING)
            if further is None:
                return None
            view = further


def _scaled(view: View) -> tuple[View, View] | None:
    """What a multiply scales, and the scale; None where neither operand repeats along a dimension."""
    node = view.node
    for value, other in (node.operands, node.operands[::-1]):
        if value.shape.strides != node.shape.strides or not _repeats(other):
            continue
        found = find_operand(node, other, COMPUTED_TYPES, lambda _: False, lambda value: value.is_result)
        dimensions = None if found is None else project(found, node.shape, view.dimensions)
        if found is not None and dimensions is not None:
            return View(value, view.dimensions), View(found.node, dimensions)
    return None


def _repeats(node: Node) -> bool:
    """Whether a value is one that repeats, under whatever type."""
    while node.opcode in ("bitcast", "convert"):
        node = node.operands[0]
    return node.opcode == "broadcast"


def _matrix(view: View, rows: list[int], columns: list[int]) -> tuple[Dimension, Dimension] | None:
    """A view as (rows, columns), of which one lies side by side; None where it is none."""
    first, second = (merged([view.dimensions[number] for number in part]) for part in (rows, columns))
    if first is None or second is None:
        return None
    return (first, second) if any(size == 1 or stride == 1 for size, stride in (first, second)) else None


def _per_channel(scale: View, contracting: Sequence[int], free: Sequence[int]) -> Dimension | None:
    """A scale as one number or one for each column; None where it is neither."""
    if any(scale.dimensions[number][0] != 1 for number in contracting):
        return None
    return merged([scale.dimensions[number] for number in free])
