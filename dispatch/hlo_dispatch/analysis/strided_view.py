"""Strided views: tensors as dimensions of (size, stride) over a node's buffer, and peeling of shape changes.

With strides, layouts, transposes and broadcasts become numbers in a kernel's attributes; stride 0 is a broadcast.
Peeling an instruction replaces the view's node by its operand and rebases the dimensions onto the operand's buffer. It
stops where one stride per dimension cannot express the result. A peeling policy names the opcodes that may be peeled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.ir.shape import HALF_TYPES, Shape

Dimension = tuple[int, int]
"""(size, stride in elements)."""


class View(NamedTuple):
    """A strided view: a node's buffer read as dimensions of (size, stride). A tuple: matching makes thousands."""

    node: Node
    dimensions: tuple[Dimension, ...]

    @property
    def element_type(self) -> str:
        return self.node.shape.element_type

    @property
    def sizes(self) -> list[int]:
        return [size for size, _ in self.dimensions]

    @property
    def strides(self) -> list[int]:
        return [stride for _, stride in self.dimensions]


PeelingPolicy = frozenset[str]
"""The opcodes that may be peeled on the way from a value towards its operands."""
PEEL_BITCASTS: PeelingPolicy = frozenset(("bitcast",))
PEEL_LAYOUTS: PeelingPolicy = PEEL_BITCASTS | {"copy", "transpose"}
PEEL_CONVERTS: PeelingPolicy = PEEL_BITCASTS | {"convert"}
PEEL_CONVERTS_AND_LAYOUTS: PeelingPolicy = PEEL_CONVERTS | PEEL_LAYOUTS
PEEL_CONVERTS_AND_BROADCASTS: PeelingPolicy = PEEL_CONVERTS | {"broadcast"}

_WIDENED = dict.fromkeys(HALF_TYPES, "f32") | {"s8": "s32", "u8": "s32"}
"""Element type → the wider type in which XLA computes."""


def strided_dimensions_of(shape: Shape) -> tuple[Dimension, ...]:
    """The dimensions of the view that covers the whole shape."""
    return shape.strided_dimensions


def full_view(node: Node) -> View:
    """The view of the whole node, with the dimensions of its shape."""
    return View(node, node.shape.strided_dimensions)


def dimension_number(dimension: Dimension, node: Node) -> int | None:
    """The number of the dimension of the node's shape that equals this one; None: it is none of them."""
    own = strided_dimensions_of(node.shape)
    return own.index(dimension) if dimension in own else None


def split_dimension(dimension: Dimension, shape: Shape) -> list[tuple[int, int, int]] | None:
    """Split a dimension over `shape`'s buffer into pieces, each within one dimension of `shape`.

    Returns (size, dimension number, step within it) from the fastest to the slowest, or None where a
    boundary falls inside a piece.
    """
    size, stride = dimension
    if size == 1:
        return []
    low, high = stride, stride * size
    found: list[tuple[int, int, int]] = []
    covered = 1
    for number in shape.minor_to_major:
        inner = shape.strides[number]
        outer = inner * shape.dimensions[number]
        start, end = max(low, inner), min(high, outer)
        if end <= start:
            continue
        if end % start or start % inner:
            return None
        found.append((end // start, number, start // inner))
        covered *= end // start
    return found if covered == size else None


def merge_dimensions(factors: Iterable[Dimension]) -> Dimension | None:
    """One dimension that walks over `factors` (fastest first), or None if no single stride does."""
    size = 1
    stride: int | None = None
    for part_size, part_stride in factors:
        if part_size == 1:
            continue
        if stride is None:
            size, stride = part_size, part_stride
        elif part_stride == stride * size:
            size *= part_size
        else:
            return None
    return size, 1 if stride is None else stride


def rebase_dimensions(
    dimensions: Sequence[Dimension], shape: Shape, strides: Sequence[int]
) -> tuple[Dimension, ...] | None:
    """State `dimensions` (over `shape`'s buffer) over another buffer.

    Args:
        dimensions: what to restate; a stride of 0 stays a repeat.
        shape: the shape whose buffer they are over.
        strides: for each dimension of `shape`, its stride in the other buffer (0: it is repeated there).
    """
    restated: list[Dimension] = []
    for size, stride in dimensions:
        if size == 1 or stride == 0:
            restated.append((size, stride))
            continue
        factors = split_dimension((size, stride), shape)
        if factors is None:
            return None
        merged = merge_dimensions((factor, strides[number] * step) for factor, number, step in factors)
        if merged is None:
            return None
        restated.append((size, merged[1]))
    return tuple(restated)


def _operand_strides(node: Node) -> Sequence[int] | None:
    """For each dimension of `node`, its stride in its operand's buffer; None where `node` is no re-arrangement."""
    source = node.operands[0].shape
    if node.opcode in ("copy", "convert", "reduce-precision"):
        return source.strides
    if node.opcode == "transpose":
        return [source.strides[number] for number in node.proto.dimensions[:]]
    if node.opcode == "broadcast":
        strides = [0] * len(node.shape.dimensions)
        for position, number in enumerate(node.proto.dimensions):
            if source.dimensions[position] != 1:
                strides[number] = source.strides[position]
        return strides
    return None


def is_bitcast_copy(node: Node) -> bool:
    """Whether the node is a copy that only reorders dimensions of one element, so that no byte moves.

    A copy with equal layouts does not count: XLA may have inserted it to protect a buffer from an in-place update.
    """
    if node.opcode != "copy" or not node.shape.is_array:
        return False
    source = node.operands[0].shape
    if source.minor_to_major == node.shape.minor_to_major:
        return False
    strides = zip(node.shape.dimensions, source.strides, node.shape.strides, strict=True)
    return all(before == after for size, before, after in strides if size > 1)


def peel(view: View, policy: PeelingPolicy) -> View | None:
    """The view of the same elements over the node's operand; None where the node cannot be peeled.

    A convert is peeled only where it widens (bf16 or f16 to f32, s8 or u8 to s32), because no value changes then. A
    copy that moves no byte is peeled under every policy.
    """
    node = view.node
    if node.is_result or not node.operands:
        return None
    source = node.operands[0]
    if is_bitcast_copy(node):
        return View(source, view.dimensions)
    if node.opcode not in policy:
        return None
    if node.opcode == "bitcast":
        return View(source, view.dimensions) if source.shape.element_type == node.shape.element_type else None
    if node.opcode == "convert" and node.shape.element_type != _WIDENED.get(source.shape.element_type):
        return None
    strides = _operand_strides(node)
    if strides is None:
        return None
    if view.dimensions == strided_dimensions_of(node.shape):  # the common case, and quick
        return View(source, tuple(zip(node.shape.dimensions, strides, strict=True)))
    dimensions = rebase_dimensions(view.dimensions, node.shape, strides)
    return None if dimensions is None else View(source, dimensions)


def peeled_views(view: View, policy: PeelingPolicy) -> list[View]:
    """`view` and every view that repeated peeling gives, nearest first."""
    found = [view]
    while (peeled := peel(found[-1], policy)) is not None:
        found.append(peeled)
    return found


def project_dimensions(view: View, shape: Shape, onto: Sequence[Dimension]) -> tuple[Dimension, ...] | None:
    """State a view with `shape`'s dimensions in the dimensions `onto`, which are over `shape`'s buffer.

    This is how an elementwise operand, given in the dimensions of the add it meets, is described in the
    dimensions of the primitive whose result that add takes. Returns (size, stride) per dimension of `onto`,
    size 1 where the operand repeats, or None where a dimension repeats only in part.
    """
    strides = view.strides
    numbers = {dimension: number for number, dimension in enumerate(strided_dimensions_of(shape))}
    projected: list[Dimension] = []
    for size, stride in onto:
        number = numbers.get((size, stride))
        if number is not None:  # the common case, and quick
            projected.append((size, strides[number]) if strides[number] else (1, 1))
            continue
        factors = split_dimension((size, stride), shape)
        if factors is None:
            return None
        moved = [(factor, strides[number] * step) for factor, number, step in factors]
        if all(step == 0 for _, step in moved):
            projected.append((1, 1))
            continue
        if any(step == 0 for _, step in moved):
            return None
        merged = merge_dimensions(moved)
        if merged is None:
            return None
        projected.append((size, merged[1]))
    return tuple(projected)


def project_groups(view: View, shape: Shape, dimension: Dimension) -> Dimension | None:
    """Likewise for one dimension along which each value repeats for a number of elements.

    Returns (number of values, stride), or None where the dimension has no such groups.
    """
    factors = split_dimension(dimension, shape)
    if factors is None:
        return None
    moved = [(factor, view.strides[number] * step) for factor, number, step in factors]
    first = next((place for place, (_, step) in enumerate(moved) if step), len(moved))
    return None if any(step == 0 for _, step in moved[first:]) else merge_dimensions(moved[first:])


def with_dense_strides(dimensions: Sequence[Dimension], order: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """The same dimensions, those of size 1 given the stride they would have in a dense tensor.

    A stride along one element means nothing, but libraries recognise a layout by all its strides.

    Args:
        order: dimensions (of the result, usually) whose strides say which dimension varies faster.
    """
    strides = [stride for _, stride in dimensions]
    distance = 1
    for number in sorted(range(len(dimensions)), key=lambda n: (order[n][1], -n)):
        size = dimensions[number][0]
        if size == 1:
            strides[number] = distance
        distance = max(distance, strides[number] * size)
    return tuple((size, stride) for (size, _), stride in zip(dimensions, strides, strict=True))
