"""Placements: strided views along the axes of one attention, and their peeling.

A placement is a node's buffer as a list of axes (batches, queries and keys first, then the value's other dimensions)
and an offset. XLA reshapes and transposes between the two products; peeling turns those instructions into strides.
Where one splits an axis (grouped heads), `AxisSplit` restarts the match with two axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, PeelingPolicy, merge_dimensions, split_dimension
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.shape import HALF_TYPES, Shape

FLOATING = frozenset(("f32",)) | HALF_TYPES
PEEL_ROUNDING: PeelingPolicy = frozenset(("convert", "reduce-precision"))
PEEL_BROADCASTS: PeelingPolicy = frozenset(("broadcast",))
PEEL_SLICES: PeelingPolicy = frozenset(("slice",))
PEEL_WIDENING: PeelingPolicy = frozenset(("widening",))
"""A convert that changes no value; ROUNDING passes any between floating types."""


class NotAttention(Exception):
    """The candidate is not an attention that the kernel supports; the finder turns it into a refusal, or drops it."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class AxisSplit(Exception):
    """An axis must be split into several: their sizes, slowest first."""

    def __init__(self, axis: int, sizes: Sequence[int]) -> None:
        super().__init__(f"axis {axis} is {sizes}")
        self.axis, self.sizes = axis, tuple(sizes)


class Placement(NamedTuple):
    """A strided view of a node's buffer along axes; an axis of one element, or a broadcast, has stride 0."""

    node: Node
    dimensions: tuple[Dimension, ...]
    offset: int = 0
    """Elements in front of the first."""


def make_placement(node: Node, dimensions: Sequence[Dimension], offset: int = 0) -> Placement:
    """The placement with stride 0 for axes of one element."""
    return Placement(node, tuple((size, stride if size > 1 else 0) for size, stride in dimensions), offset)


def peel_placement(placement: Placement, policy: PeelingPolicy) -> Placement | None:
    """The placement of the same elements over the node's operand; None: the policy does not allow it.

    Raises:
        AxisSplit: it could with other axes.
    """
    node = placement.node
    if not node.operands or node.proto.control_predecessor_ids:
        return None
    source = node.operands[0]
    if node.opcode in PEEL_ROUNDING:
        if not _may_peel_convert(node, source, policy):
            return None
    elif node.opcode not in policy or source.shape.element_type != node.shape.element_type:
        return None
    if node.opcode == "bitcast":
        return Placement(source, placement.dimensions, placement.offset)
    if node.opcode == "slice":
        return _peel_slice(placement, source)
    return rebase_placement(placement, source, _strides_in_operand(node))


def _may_peel_convert(node: Node, source: Node, policy: PeelingPolicy) -> bool:
    kinds = (source.shape.element_type, node.shape.element_type)
    if node.opcode in policy:
        return FLOATING.issuperset(kinds)
    return "widening" in policy and node.opcode == "convert" and kinds[0] in HALF_TYPES and kinds[1] == "f32"


def _strides_in_operand(node: Node) -> Sequence[int]:
    source = node.operands[0].shape
    if node.opcode == "transpose":
        return [source.strides[number] for number in node.proto.dimensions[:]]
    if node.opcode == "broadcast":
        strides = [0] * len(node.shape.dimensions)
        for position, number in enumerate(node.proto.dimensions[:]):
            strides[number] = source.strides[position] if source.dimensions[position] > 1 else 0
        return strides
    return source.strides


def _peel_slice(placement: Placement, source: Node) -> Placement | None:
    """The placement over the operand of a slice."""
    cuts = placement.node.proto.slice_dimensions
    strides = [stride * max(1, cut.stride) for stride, cut in zip(source.shape.strides, cuts, strict=True)]
    found = rebase_placement(placement, source, strides)
    first = sum(cut.start * stride for cut, stride in zip(cuts, source.shape.strides, strict=True))
    return None if found is None else found._replace(offset=found.offset + first)


def rebase_placement(placement: Placement, node: Node, strides: Sequence[int]) -> Placement | None:
    """The placement rebased onto another node's buffer, where the dimensions of its own shape have these strides.

    Raises:
        AxisSplit: an axis takes two strides there.
    """
    shape = placement.node.shape
    if placement.offset and not _is_in_bounds(placement, shape):
        return None
    dimensions: list[Dimension] = []
    for axis, (size, stride) in enumerate(placement.dimensions):
        if size == 1 or stride == 0:
            dimensions.append((size, 0))
            continue
        parts = split_dimension((size, stride), shape)
        if parts is None:
            return None
        merged = merge_dimensions((part, strides[number] * step) for part, number, step in parts)
        if merged is None:
            raise AxisSplit(axis, [part for part, _, _ in reversed(parts)])
        dimensions.append((size, merged[1]))
    first = element_indices(placement.offset, shape)
    offset = sum(start * stride for start, stride in zip(first, strides, strict=True))
    return Placement(node, tuple(dimensions), offset)


def element_indices(offset: int, shape: Shape) -> list[int]:
    """The index of one element along each of the shape's dimensions."""
    return [offset // stride % size if offset else 0 for size, stride in shape.strided_dimensions]


def _is_in_bounds(placement: Placement, shape: Shape) -> bool:
    """Whether every axis that starts inside a dimension ends inside it."""
    last = element_indices(placement.offset, shape)
    for size, stride in placement.dimensions:
        if size == 1 or stride == 0:
            continue
        parts = split_dimension((size, stride), shape)
        if parts is None:
            return False
        for part, number, step in parts:
            last[number] += (part - 1) * step
    return all(end < size for end, size in zip(last, shape.dimensions, strict=True))


def operand_placement(placement: Placement, operand: Node) -> Placement | None:
    """The placement over an elementwise instruction's operand.

    Raises:
        AxisSplit: the operand lies otherwise in memory.
    """
    if operand.shape.strides == placement.node.shape.strides:
        return Placement(operand, placement.dimensions, placement.offset)
    return rebase_placement(placement, operand, operand.shape.strides)


def peeled_placements(placement: Placement, policy: PeelingPolicy) -> list[Placement]:
    """The placement and every peeled one, nearest first.

    Raises:
        AxisSplit: one of them needs other axes.
    """
    found = [placement]
    while (further := peel_placement(found[-1], policy)) is not None:
        found.append(further)
    return found


def peel_node(node: Node, policy: PeelingPolicy) -> Node:
    """The node at which peeling ends, whatever the axes."""
    while node.opcode in policy and node.operands:
        node = node.operands[0]
    return node
