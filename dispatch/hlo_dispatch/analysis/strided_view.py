"""Strided views: a node's buffer read as dimensions of (size, stride) from an offset, and their peeling.

With strides, layouts, transposes and broadcasts become numbers in a kernel's attributes; stride 0 is a broadcast, a
negative one a reversal.
Peeling an instruction replaces the view's node by its operand and rebases the dimensions onto the operand's buffer. It
stops where one stride per dimension cannot express the result. A peeling policy (peeling.py) names what may be peeled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_ALL, PEEL_ROUNDING, WIDENING, PeelingPolicy
from hlo_dispatch.ir.shape import FLOAT_TYPES, HALF_TYPES, Shape

Dimension = tuple[int, int]
"""(size, stride in elements)."""


class View(NamedTuple):
    """A strided view: a node's buffer read as dimensions of (size, stride). A tuple: matching makes thousands."""

    node: Node
    dimensions: tuple[Dimension, ...]
    offset: int = 0
    """Elements in front of the first one."""

    @property
    def element_type(self) -> str:
        return self.node.shape.element_type

    @property
    def sizes(self) -> list[int]:
        return [size for size, _ in self.dimensions]

    @property
    def strides(self) -> list[int]:
        return [stride for _, stride in self.dimensions]


class DimensionSplit(NamedTuple):
    """Why no view of the same dimensions exists: one of them has several strides there."""

    number: int
    """Number of the dimension."""
    sizes: tuple[int, ...]
    """The sizes of its parts with one stride each, slowest first."""


_NONE: frozenset[Node] = frozenset()
_WIDENED = dict.fromkeys(HALF_TYPES, "f32") | {"s8": "s32", "u8": "s32", "s16": "s32"}
"""Element type → the wider type in which XLA computes."""


def full_view(node: Node) -> View:
    """The view of the whole node, with the dimensions of its shape."""
    return View(node, node.shape.strided_dimensions)


def dimension_number(dimension: Dimension, node: Node) -> int | None:
    """The number of the dimension of the node's shape that equals this one; None: it is none of them."""
    own = node.shape.strided_dimensions
    return own.index(dimension) if dimension in own else None


def split_dimension(dimension: Dimension, shape: Shape) -> list[tuple[int, int, int]] | None:
    """Split a dimension over `shape`'s buffer into pieces, each within one dimension of `shape`.

    Returns (size, dimension number, step within it) from the fastest to the slowest, or None where a
    boundary falls inside a piece.
    """
    size, stride = dimension
    if size == 1:
        return []
    sign, low = (1, stride) if stride > 0 else (-1, -stride)
    high = low * size
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
        found.append((end // start, number, sign * start // inner))
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
    """State `dimensions` (over `shape`'s buffer) over another buffer; None: they have no single strides there.

    Args:
        dimensions: what to restate; a stride of 0 stays a repeat.
        shape: the shape whose buffer they are over.
        strides: for each dimension of `shape`, its stride in the other buffer (0: it is repeated there).
    """
    found = _rebased(dimensions, shape, strides)
    return None if isinstance(found, DimensionSplit) else found


def rebase(view: View, node: Node, strides: Sequence[int]) -> View | DimensionSplit | None:
    """The view of the same elements over the buffer of `node`.

    Args:
        strides: for each dimension of the view's own node, its stride in that buffer (0: it is repeated there).

    Returns:
        a `DimensionSplit` where the view has no single strides there, None where it runs over the ends of a dimension.
    """
    shape = view.node.shape
    if view.offset and not _is_in_bounds(view):
        return None
    found = _rebased(view.dimensions, shape, strides)
    if found is None or isinstance(found, DimensionSplit):
        return found
    if not view.offset:
        return View(node, found)
    first = element_indices(view.offset, shape)
    return View(node, found, sum(start * stride for start, stride in zip(first, strides, strict=True)))


def operand_view(view: View, operand: Node) -> View | DimensionSplit | None:
    """The view over an operand of the node, an elementwise instruction."""
    if operand.shape.strides == view.node.shape.strides:
        return View(operand, view.dimensions, view.offset)
    return rebase(view, operand, operand.shape.strides)


def element_indices(offset: int, shape: Shape) -> list[int]:
    """The index of one element along each of the shape's dimensions."""
    return [offset // stride % size if offset else 0 for size, stride in shape.strided_dimensions]


def _rebased(
    dimensions: Sequence[Dimension], shape: Shape, strides: Sequence[int]
) -> tuple[Dimension, ...] | DimensionSplit | None:
    if dimensions == shape.strided_dimensions:  # the common case, and quick
        return tuple(zip(shape.dimensions, strides, strict=True))
    found: list[Dimension] = []
    for number, (size, stride) in enumerate(dimensions):
        if size == 1 or stride == 0:
            found.append((size, stride))
            continue
        parts = split_dimension((size, stride), shape)
        if parts is None:
            return None
        merged = merge_dimensions((part, strides[own] * step) for part, own, step in parts)
        if merged is None:
            return DimensionSplit(number, tuple(part for part, _, _ in reversed(parts)))
        found.append((size, merged[1]))
    return tuple(found)


def _is_in_bounds(view: View) -> bool:
    """Whether every dimension of the view that starts inside a dimension of the node's shape ends inside it."""
    shape = view.node.shape
    last = element_indices(view.offset, shape)
    for size, stride in view.dimensions:
        if size == 1 or stride == 0:
            continue
        parts = split_dimension((size, stride), shape)
        if parts is None:
            return False
        for part, number, step in parts:
            last[number] += (part - 1) * step
    return all(0 <= end < size for end, size in zip(last, shape.dimensions, strict=True))


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


def peel_or_split(
    view: View, policy: PeelingPolicy, results: AbstractSet[Node] = _NONE
) -> View | DimensionSplit | None:
    """The view of the same elements over the node's operand.

    Args:
        results: results of calls, in front of which the values may not exist.

    Returns:
        a `DimensionSplit` where the view has no single strides there, None where the policy does not peel the node.
    """
    node = view.node
    if node in results or not _may_peel(node, policy):
        return None
    opcode, source = node.opcode, node.operands[0]
    if opcode == "bitcast" or (opcode == "copy" and is_bitcast_copy(node)):
        return View(source, view.dimensions, view.offset)
    if opcode == "slice":
        return _peel_slice(view, source)
    if opcode == "reverse":
        return _peel_reverse(view, source)
    if opcode == "transpose":
        return rebase(view, source, [source.shape.strides[number] for number in node.proto.dimensions[:]])
    if opcode == "broadcast":
        return rebase(view, source, _broadcast_strides(node))
    return None if opcode == "reshape" else rebase(view, source, source.shape.strides)


def _may_peel(node: Node, policy: PeelingPolicy) -> bool:
    """Whether the policy peels the node. A copy that moves no byte is peeled under every policy."""
    opcode = node.opcode
    if opcode in PEEL_ROUNDING:
        kinds = (node.operands[0].shape.element_type, node.shape.element_type)
        is_widened = opcode == "convert" and WIDENING in policy and _WIDENED.get(kinds[0]) == kinds[1]
        allowed = is_widened or (opcode in policy and FLOAT_TYPES.issuperset(kinds))
    elif opcode in policy:
        allowed = node.operands[0].shape.element_type == node.shape.element_type
    else:
        allowed = opcode == "copy" and is_bitcast_copy(node)
    return allowed and not node.has_control_predecessors


def _broadcast_strides(node: Node) -> list[int]:
    """The stride of each of a broadcast's dimensions in its operand's buffer."""
    source = node.operands[0].shape
    strides = [0] * len(node.shape.dimensions)
    for position, number in enumerate(node.proto.dimensions[:]):
        strides[number] = source.strides[position] if source.dimensions[position] > 1 else 0
    return strides


def _peel_slice(view: View, source: Node) -> View | DimensionSplit | None:
    cuts, strides = view.node.proto.slice_dimensions[:], source.shape.strides
    found = rebase(view, source, [stride * max(1, cut.stride) for stride, cut in zip(strides, cuts, strict=True)])
    if not isinstance(found, View):
        return found
    return found._replace(offset=found.offset + sum(c.start * stride for c, stride in zip(cuts, strides, strict=True)))


def _peel_reverse(view: View, source: Node) -> View | DimensionSplit | None:
    first, strides = 0, list(source.shape.strides)
    for number in view.node.proto.dimensions[:]:
        first += (source.shape.dimensions[number] - 1) * strides[number]
        strides[number] = -strides[number]
    found = rebase(view, source, strides)
    return found._replace(offset=found.offset + first) if isinstance(found, View) else found


def peel(view: View, policy: PeelingPolicy, results: AbstractSet[Node] = _NONE) -> View | None:
    """The view of the same elements over the node's operand; None where the node cannot be peeled."""
    found = peel_or_split(view, policy, results)
    return None if isinstance(found, DimensionSplit) else found


def follow(view: View, user: Node, policy: PeelingPolicy) -> View | None:
    """The view of the same elements over the result of a user; None: it has other elements, or no single strides.

    Args:
        policy: of layouts and of types alone.
    """
    if user.opcode not in policy or user.opcode == "reshape" or user.has_control_predecessors:
        return None
    if user.opcode == "bitcast":
        same_bytes = user.shape.element_type == view.element_type
        return View(user, view.dimensions, view.offset) if same_bytes else None
    strides = list(user.shape.strides)
    if user.opcode == "transpose":
        for number, dimension in enumerate(user.proto.dimensions[:]):
            strides[dimension] = user.shape.strides[number]
    found = rebase(view, user, strides)
    return None if isinstance(found, DimensionSplit) else found


def peeled_views(view: View, policy: PeelingPolicy, results: AbstractSet[Node] = _NONE) -> list[View]:
    """`view` and every view that repeated peeling gives, nearest first."""
    found = [view]
    while found[-1].node.opcode in PEEL_ALL and (peeled := peel(found[-1], policy, results)) is not None:
        found.append(peeled)
    return found


def project_dimensions(
    dimensions: Sequence[Dimension], shape: Shape, onto: Sequence[Dimension]
) -> tuple[Dimension, ...] | None:
    """State a view's dimensions, which are `shape`'s, in the dimensions `onto`, which are over `shape`'s buffer.

    This is how an elementwise operand, given in the dimensions of the add it meets, is described in the
    dimensions of the primitive whose result that add takes. Returns (size, stride) per dimension of `onto`,
    size 1 where the operand repeats, or None where a dimension repeats only in part.
    """
    strides = [stride for _, stride in dimensions]
    numbers = {dimension: number for number, dimension in enumerate(shape.strided_dimensions)}
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
    if all([size != 1 for size, _ in dimensions]):
        return tuple(dimensions)
    strides = [stride for _, stride in dimensions]
    distance = 1
    for number in sorted(range(len(dimensions)), key=lambda n: (order[n][1], -n)):
        size = dimensions[number][0]
        if size == 1:
            strides[number] = distance
        distance = max(distance, strides[number] * size)
    return tuple((size, stride) for (size, _), stride in zip(dimensions, strides, strict=True))
