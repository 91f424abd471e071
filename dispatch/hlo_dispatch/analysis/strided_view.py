"""Tensors as strided views, so that layouts, transposes and broadcasts become numbers in a kernel's attributes.

A view is a node (whose buffer holds the bytes) and a list of dimensions, each a (size, stride) pair in
elements over that buffer; stride 0 repeats. Looking *through* an instruction replaces the node by its
operand and restates the same dimensions over the operand's buffer; where that is impossible with one stride
per dimension, the look ends there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.ir.shape import HALF_TYPES, Shape

Dimension = tuple[int, int]
"""(size, stride in elements)."""


class View(NamedTuple):
    """A node's buffer read as dimensions of (size, stride). A tuple: matching makes thousands."""

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


_WIDENED = dict.fromkeys(HALF_TYPES, "f32") | {"s8": "s32", "u8": "s32"}
"""Element type → the one that XLA widens it to where it computes."""


def whole_shape(shape: Shape) -> tuple[Dimension, ...]:
    """One (size, stride) per dimension of the shape."""
    return shape.places


def whole(node: Node) -> View:
    """The node as it is: one dimension per dimension of its shape."""
    return View(node, node.shape.places)


def place_of(dimension: Dimension, node: Node) -> int | None:
    """Which dimension of the node's shape this is, as a whole."""
    own = whole_shape(node.shape)
    return own.index(dimension) if dimension in own else None


def pieces(dimension: Dimension, shape: Shape) -> list[tuple[int, int, int]] | None:
    """Split a dimension over `shape`'s buffer into pieces that each lie in one dimension of `shape`.

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


def merge(parts: Iterable[Dimension]) -> Dimension | None:
    """One dimension that walks over `parts` (fastest first), or None if no single stride does."""
    size = 1
    stride: int | None = None
    for part_size, part_stride in parts:
        if part_size == 1:
            continue
        if stride is None:
            size, stride = part_size, part_stride
        elif part_stride == stride * size:
            size *= part_size
        else:
            return None
    return size, 1 if stride is None else stride


def restate(dimensions: Sequence[Dimension], shape: Shape, strides: Sequence[int]) -> tuple[Dimension, ...] | None:
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
        parts = pieces((size, stride), shape)
        if parts is None:
            return None
        merged = merge((part, strides[number] * step) for part, number, step in parts)
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


def renames_layout(node: Node) -> bool:
    """Whether a copy only gives dimensions of one element another place in the order of all.

    A copy that keeps its layout is none of these: XLA may have put it there for what is written in place later.
    """
    if node.opcode != "copy" or not node.shape.is_array:
        return False
    source = node.operands[0].shape
    if source.minor_to_major == node.shape.minor_to_major:
        return False
    strides = zip(node.shape.dimensions, source.strides, node.shape.strides, strict=True)
    return all(before == after for size, before, after in strides if size > 1)


def look_through(view: View, opcodes: frozenset[str]) -> View | None:
    """The same elements one instruction further up, if that instruction is one of `opcodes` and allows it.

    A convert is looked through only where it widens (bf16 or f16 to f32, s8 or u8 to s32): no value changes. A copy
    that only renames a layout is looked through whatever `opcodes` are: it moves nothing.
    """
    node = view.node
    if node.is_result or not node.operands:
        return None
    source = node.operands[0]
    if renames_layout(node):
        return View(source, view.dimensions)
    if node.opcode not in opcodes:
        return None
    if node.opcode == "bitcast":
        return View(source, view.dimensions) if source.shape.element_type == node.shape.element_type else None
    if node.opcode == "convert" and node.shape.element_type != _WIDENED.get(source.shape.element_type):
        return None
    strides = _operand_strides(node)
    if strides is None:
        return None
    if view.dimensions == whole_shape(node.shape):  # the common case, and quick
        return View(source, tuple(zip(node.shape.dimensions, strides, strict=True)))
    dimensions = restate(view.dimensions, node.shape, strides)
    return None if dimensions is None else View(source, dimensions)


def candidates(view: View, opcodes: frozenset[str]) -> list[View]:
    """`view` and every view of the same elements further up, nearest first."""
    found = [view]
    while (further := look_through(found[-1], opcodes)) is not None:
        found.append(further)
    return found


def project(view: View, shape: Shape, onto: Sequence[Dimension]) -> tuple[Dimension, ...] | None:
    """State a view with `shape`'s dimensions in the dimensions `onto`, which are over `shape`'s buffer.

    This is how an elementwise operand, given in the dimensions of the add it meets, is described in the
    dimensions of the primitive whose result that add takes. Returns (size, stride) per dimension of `onto`,
    size 1 where the operand repeats, or None where a dimension repeats only in part.
    """
    strides = view.strides
    numbers = {dimension: number for number, dimension in enumerate(whole_shape(shape))}
    projected: list[Dimension] = []
    for size, stride in onto:
        number = numbers.get((size, stride))
        if number is not None:  # the common case, and quick
            projected.append((size, strides[number]) if strides[number] else (1, 1))
            continue
        parts = pieces((size, stride), shape)
        if parts is None:
            return None
        moved = [(part, strides[number] * step) for part, number, step in parts]
        if all(step == 0 for _, step in moved):
            projected.append((1, 1))
            continue
        if any(step == 0 for _, step in moved):
            return None
        merged = merge(moved)
        if merged is None:
            return None
        projected.append((size, merged[1]))
    return tuple(projected)


def project_in_groups(view: View, shape: Shape, dimension: Dimension) -> Dimension | None:
    """Likewise for one dimension along which a value repeats for a number of elements, then takes the next one.

    Returns (how many values there are, stride), or None where it does not change so.
    """
    parts = pieces(dimension, shape)
    if parts is None:
        return None
    moved = [(part, view.strides[number] * step) for part, number, step in parts]
    first = next((place for place, (_, step) in enumerate(moved) if step), len(moved))
    return None if any(step == 0 for _, step in moved[first:]) else merge(moved[first:])


def dense(dimensions: Sequence[Dimension], order: Sequence[Dimension]) -> tuple[Dimension, ...]:
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
