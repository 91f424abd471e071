"""Quantized operands of a dot: integers that are widened, shifted by a zero point and scaled.

    (convert(q) - zero) · scale

`q` are integers of eight or four bits, or bytes with two numbers of four bits each (packed_nibbles.py). XLA writes the
steps in this order, converts between float types and instructions that move elements anywhere in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from hlo_dispatch.analysis.dot_dimensions import DotDimensions
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS, is_broadcast
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    full_view,
    operand_view,
    peel,
    project_dimensions,
    project_groups,
)
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.anchors.anchor import COMPUTED_TYPES
from hlo_dispatch.match.anchors.dot import merge_row_major
from hlo_dispatch.match.anchors.packed_nibbles import UNPACKED_TYPES, converted, packed_nibbles
from hlo_dispatch.match.epilogue.operand import find_operand
from hlo_dispatch.pattern.op_kinds import QUANTIZED_WEIGHT_TYPES

_FOUR_BITS = 4


class QuantizedOperand(NamedTuple):
    """An operand of a dot before it was widened, its zero points and its scale."""

    view: View
    """In numbers of four bits where bytes hold two of them."""
    scale: View | None
    """One dimension per dimension of the operand: size 1 for a broadcast, else the number of groups."""
    zeros: View | None = None
    """Likewise."""
    zero: float = 0.0
    """The zero point of all of them, besides."""
    block: int = 0
    """Of bytes with two numbers each: how many adjacent numbers have their first half in the lower bits of as many
    bytes, and the second one in the upper bits; 0: each integer has its own bits."""


def quantized_operand(operand: Node, results: AbstractSet[Node]) -> QuantizedOperand | None:
    """The quantized operand behind a widened one; None: it is none.

    Args:
        results: results of calls, in front of which values may not exist.
    """
    view, scale = full_view(operand), None
    zeros, zero = None, 0.0
    while True:
        node = view.node
        if node in results or not node.operands or node.has_control_predecessors:
            return None
        found: View | None
        if node.opcode == "convert" and node.operands[0].shape.element_type not in COMPUTED_TYPES:
            integers = _integers(view)
            return None if integers is None else integers._replace(scale=scale, zeros=zeros, zero=zero + integers.zero)
        if node.opcode in ("add", "subtract"):
            shift = _shift(view)
            if shift is not None:
                found, zero = shift[0], zero + shift[1]
            else:
                found, zeros = (
                    with_broadcast(view, results) if zeros is None and node.opcode == "subtract" else (None, None)
                )
        elif node.opcode == "multiply":
            # A zero point that is not scaled is none.
            is_first = scale is None and zeros is None and not zero
            found, scale = with_broadcast(view, results) if is_first else (None, None)
        else:
            found = peel(view, PEEL_CONVERTS_AND_LAYOUTS, results) or converted(view)
        if found is None:
            return None
        view = found


def _integers(view: View) -> QuantizedOperand | None:
    """The integers that a convert widens."""
    inner = operand_view(view, view.node.operands[0])
    kind = view.node.operands[0].shape.element_type
    if not isinstance(inner, View) or kind not in QUANTIZED_WEIGHT_TYPES | UNPACKED_TYPES:
        return None
    packed = packed_nibbles(inner)
    if packed is not None:
        return QuantizedOperand(packed.view, None, zero=packed.zero, block=packed.block)
    is_whole = kind in QUANTIZED_WEIGHT_TYPES and _has_whole_bytes(inner.node.shape)
    return QuantizedOperand(inner, None) if is_whole else None


def _shift(view: View) -> tuple[View, float] | None:
    """(the shifted value, the constant that is subtracted from it); None: what is subtracted is no constant."""
    node = view.node
    for value, other in (node.operands, node.operands[::-1]):
        constant = scalar_constant(other)
        if constant is not None and value.shape.strides == node.shape.strides:
            return View(value, view.dimensions), constant if node.opcode == "subtract" else -constant
        if node.opcode == "subtract":
            break
    return None


def with_broadcast(view: View, results: AbstractSet[Node]) -> tuple[View, View] | tuple[None, None]:
    """The value that an elementwise instruction combines with a broadcast, and the latter; Nones: with something else.

    What a subtraction subtracts is the second operand.
    """
    node = view.node
    orders = (node.operands,) if node.opcode == "subtract" else (node.operands, node.operands[::-1])
    for value, other in orders:
        if value.shape.strides != node.shape.strides or not is_broadcast(other):
            continue
        found = find_operand(node, other, COMPUTED_TYPES, lambda _: False, results.__contains__, results)
        dimensions = None if found is None else [_projected(found, node.shape, one) for one in view.dimensions]
        if found is not None and dimensions is not None and None not in dimensions:
            known = tuple(dimension for dimension in dimensions if dimension is not None)
            return View(value, view.dimensions), View(found.node, known)
    return None, None


def groups_and_columns(
    scale: View, sizes: Sequence[int], numbers: DotDimensions
) -> tuple[Dimension | None, Dimension | None]:
    """A scale as (groups of the contracted dimensions, columns), of size 1 where it is a broadcast; None: no single
    stride, or a group's rows are far apart.

    Args:
        sizes: of the operand's dimensions.
    """
    channels = merge_row_major([scale.dimensions[number] for number in numbers.free])
    summed = [(scale.dimensions[number][0], sizes[number]) for number in numbers.contracting]
    within = next((place for place, (count, size) in enumerate(summed) if count < size), len(summed))
    if any(count > 1 for count, _ in summed[within + 1 :]):
        return None, channels
    return merge_row_major([scale.dimensions[number] for number in numbers.contracting]), channels


def _projected(scale: View, shape: Shape, dimension: Dimension) -> Dimension | None:
    """A scale along one dimension of the value that it scales."""
    projected = project_dimensions(scale.dimensions, shape, (dimension,))
    return projected[0] if projected is not None else project_groups(scale, shape, dimension)


def _has_whole_bytes(shape: Shape) -> bool:
    """Whether rows of weights end at byte boundaries; two weights of four bits share a byte."""
    if shape.element_type != "s4":
        return True
    return shape.packed_bits == _FOUR_BITS and shape.dimensions[shape.minor_to_major[0]] % 2 == 0
