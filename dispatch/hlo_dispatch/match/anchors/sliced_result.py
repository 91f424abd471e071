"""Slice narrowing: an anchor op of which only a slice is used, as the smaller anchor that computes the slice alone.

    (x @ w)[a:b, c:d]     = x[a:b] @ w[:, c:d]
    conv(x, w)[.., a:, ..] = conv(x, w) with its window moved by a positions: its padding is smaller by a strides

Slices of rows, columns and channels of an operand are an offset into its buffer, with other sizes and strides. Between
the anchor op and the slice only ops that keep the memory order (a bitcast, a rounding) are allowed; steps with other
operands would require slicing those too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import is_widening
from hlo_dispatch.analysis.strided_view import Dimension, View, merge_dimensions, split_dimension, with_dense_strides
from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.anchors.anchor import COMPUTED_TYPES, Anchor

NodePredicate = Callable[[Node], bool]


class _SliceDimension(NamedTuple):
    """The part of one of the anchor's result dimensions that a slice keeps."""

    start: int
    size: int
    step: int
    place: Dimension
    """Over the slice's buffer."""

    def of(self, dimension: Dimension) -> tuple[Dimension, int]:
        """The same part of an operand's dimension, and its offset in elements."""
        return (self.size, dimension[1] * self.step), self.start * dimension[1]


def narrow_to_slice(anchor: Anchor, is_owned: NodePredicate, is_materialized: NodePredicate) -> Anchor | str | None:
    """The anchor that computes only the used slice of `anchor`'s result.

    None where no slice follows; a sentence where the kernel cannot compute that slice alone.

    Args:
        is_owned: whether another match owns an instruction.
        is_materialized: whether a value must be in memory.
    """
    if anchor.kernel_specific_step is not None or anchor.weights is None:
        return None
    passed = _up_to_slice(anchor, is_owned, is_materialized)
    if not passed:
        return None
    slice_op = passed[-1]
    passed += _rounding_behind(passed, is_owned, is_materialized)
    if passed[-1].shape.element_type == "f32" and any(is_widening(node) for node in passed):
        return "the slice that follows is of values rounded to half precision, which the kernel would not round"
    kept_parts = [_slice_dimension(dimension, slice_op) for dimension in anchor.destination]
    kept = [found for found in kept_parts if found is not None]
    if len(kept) < len(kept_parts):
        return "the slice that follows takes elements at uneven distances"
    smaller = _product(anchor, kept) if anchor.node.opcode == "dot" else _convolution(anchor, kept)
    if isinstance(smaller, str):
        return smaller
    destination = [found.place for found in kept]
    arithmetic = anchor.multiply_adds
    for (size, _), found in zip(anchor.destination, kept, strict=True):
        arithmetic = arithmetic * found.size // size
    return replace(
        smaller,
        destination=with_dense_strides(destination, destination),
        multiply_adds=arithmetic,
        covers=(*anchor.covers, *passed),
        value=passed[-1],
        unsliced=anchor if anchor.unsliced is None else anchor.unsliced,
        formula=anchor.formula if anchor.unsliced is not None else f"slice({_FORMULAS[anchor.node.opcode]})",
    )


_FORMULAS = {"dot": "x @ w", "convolution": "conv(x, w)"}


def _up_to_slice(anchor: Anchor, is_owned: NodePredicate, is_materialized: NodePredicate) -> list[Node]:
    """The instructions from the anchor's result to the slice that is its only use; empty: there is none."""
    passed: list[Node] = []
    value = anchor.result
    while len(value.users) == 1 and not is_materialized(value):
        user = value.users[0]
        if is_owned(user) or user.has_control_predecessors:
            break
        if user.opcode == "slice":
            return [*passed, user]
        same_places = user.opcode == "convert" and user.shape.strides == value.shape.strides
        if user.shape.element_type not in COMPUTED_TYPES or not (same_places or user.opcode == "bitcast"):
            break
        if user.opcode == "bitcast" and user.shape.element_type != value.shape.element_type:
            break
        passed.append(user)
        value = user
    return []


def _rounding_behind(passed: Sequence[Node], is_owned: NodePredicate, is_materialized: NodePredicate) -> list[Node]:
    """The rounding behind the slice, where the value was widened in front of it."""
    slice_op = passed[-1]
    if slice_op.shape.element_type != "f32" or len(slice_op.users) != 1 or is_materialized(slice_op):
        return []
    user = slice_op.users[0]
    rounds = user.opcode == "convert" and user.shape.element_type in HALF_TYPES and not is_owned(user)
    widened = any(is_widening(node) for node in passed)
    return [user] if rounds and widened and user.shape.strides == slice_op.shape.strides else []


def _slice_dimension(dimension: Dimension, slice_op: Node) -> _SliceDimension | None:
    """The part of a dimension that the slice keeps, over its operand's buffer; None: it has no single stride."""
    source = slice_op.operands[0].shape
    parts = split_dimension(dimension, source)
    if parts is None:
        return None
    unit, start = 1, 0
    kept: list[Dimension] = []
    slice_places: list[Dimension] = []
    for size, number, step in parts:
        part, count = slice_op.proto.slice_dimensions[number], slice_op.shape.dimensions[number]
        if count == source.dimensions[number]:
            kept.append((size, unit))
            slice_places.append((size, slice_op.shape.strides[number] * step))
        elif size != source.dimensions[number]:
            return None
        else:
            start += part.start * unit
            kept.append((count, unit * max(1, part.stride)))
            slice_places.append((count, slice_op.shape.strides[number]))
        unit *= size
    merged, place = merge_dimensions(kept), merge_dimensions(slice_places)
    return None if merged is None or place is None else _SliceDimension(start, merged[0], merged[1], place)


def _product(anchor: Anchor, kept_parts: Sequence[_SliceDimension]) -> Anchor | str:
    *batch, rows, columns = kept_parts
    assert anchor.weights is not None, "what has one operand is not narrowed"
    source, weights = list(anchor.source.dimensions), list(anchor.weights.dimensions)
    in_source = in_weights = 0
    for number, found in enumerate(batch):
        source[number], first = found.of(source[number])
        weights[number], second = found.of(weights[number])
        in_source, in_weights = in_source + first, in_weights + second
    source[-2], first = rows.of(source[-2])
    weights[-1], second = columns.of(weights[-1])
    for matrix in (source[-2:], weights[-2:]):
        if not any(size == 1 or stride == 1 for size, stride in matrix):
            return "the slice that follows takes single columns, which do not lie behind one another"
    return _with_operand_slices(anchor, source, in_source + first, weights, in_weights + second)


def _convolution(anchor: Anchor, kept_parts: Sequence[_SliceDimension]) -> Anchor | str:
    images, channels, *space = kept_parts
    attributes = anchor.attributes
    assert anchor.weights is not None, "what has one operand is not narrowed"
    source, weights = list(anchor.source.dimensions), list(anchor.weights.dimensions)
    if images.step > 1:
        # oneDNN's GEMM-based convolutions assume adjacent images whatever their stride.
        return "the slice that follows takes single images, which do not lie behind one another"
    source[0], in_source = images.of(source[0])
    in_weights = 0
    if (channels.start, channels.size) != (0, anchor.destination[1][0]):
        if len(weights) > len(source) or attributes.get("weights_reversed"):
            return "the slice that follows takes a part of the channels, whose weights are grouped or reversed"
        weights[0], in_weights = channels.of(weights[0])
    strides: list[int] = []
    low: list[int] = []
    high: list[int] = []
    for number, found in enumerate(space):
        reach = (weights[number - len(space)][0] - 1) * (attributes["dilations"][number] + 1)
        step = attributes["strides"][number]
        strides.append(step * found.step)
        low.append(attributes["padding_low"][number] - found.start * step)
        needed = (found.size - 1) * strides[-1] + reach + 1
        behind = needed - source[2 + number][0] - low[-1]
        # A strided convolution leaves out a remainder of less than one stride anyway.
        if low[-1] < 0 or behind <= -strides[-1]:
            return "the slice that follows crops more than the padding, and the kernel crops no image"
        high.append(max(0, behind))
    moved = {"strides": strides, "padding_low": low, "padding_high": high}
    smaller = _with_operand_slices(anchor, source, in_source, weights, in_weights)
    return replace(smaller, attributes=smaller.attributes | moved)


def _with_operand_slices(
    anchor: Anchor, source: Sequence[Dimension], in_source: int, weights: Sequence[Dimension], in_weights: int
) -> Anchor:
    """The anchor with operands that are parts of their buffers."""
    assert anchor.weights is not None, "what has one operand is not narrowed"
    attributes = dict(anchor.attributes)
    views: list[View] = []
    for role, view, dimensions, offset in (
        (anchor.roles[0], anchor.source, source, in_source),
        (anchor.roles[1], anchor.weights, weights, in_weights),
    ):
        if list(view.dimensions) != list(dimensions):
            dimensions = with_dense_strides(dimensions, view.dimensions)
            attributes[f"{role}_offset"] = attributes.get(f"{role}_offset", 0) + offset
            attributes[f"{role}_elements"] = view.node.shape.elements
        views.append(View(view.node, tuple(dimensions)))
    return replace(anchor, source=views[0], weights=views[1], attributes=attributes)
