"""Reassembled arrays: concatenations that put an array together again from its own slices, of which some are updated.

That is a cache of all layers in one array: each layer's part is sliced out of it, updated, and all parts are stacked.
The result is the array with updated rows, and needs no buffer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlo_dispatch.analysis.binding_time import is_parameter_element
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, PEEL_SHAPES_AND_COPIES, PEEL_SLICES, peel_node
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    element_indices,
    full_view,
    peel,
    rebase_dimensions,
    split_dimension,
)
from hlo_dispatch.ir.literals import INTEGER_FIELDS
from hlo_dispatch.ir.shape import Shape

_UPDATE = "dynamic-update-slice"
_PEEL_PARTS = PEEL_BITCASTS | PEEL_SLICES


@dataclass(frozen=True)
class UpdatedPart:
    """A part of an array, and one update of it."""

    update: Node
    first: tuple[int, ...]
    """The part's first index along each dimension of the array."""
    own: tuple[int | None, ...]
    """For each dimension of the array the part's own; None: the part has one index there."""

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """The sizes of an array with the part's dimensions along the dimensions of the whole array."""
        return tuple(1 if own is None else shape.dimensions[own] for own in self.own)


@dataclass(frozen=True)
class ReassembledArray:
    """An array that is put together again."""

    source: Node
    """The array as it was, an element of the computation's parameters."""
    result: Node
    """The array with its updates."""
    parts: tuple[UpdatedPart, ...]
    """Each of the updates, in an order in which they can be done."""
    inside: frozenset[Node]
    """What is made of the parts in between: updates, bitcasts and concatenations."""


def find_reassembled_arrays(graph: FlatGraph) -> list[ReassembledArray]:
    """The reassembled arrays among the elements of a computation's result."""
    results = graph.root.operands if graph.root.opcode == "tuple" else (graph.root,)
    found: list[ReassembledArray] = []
    sources: set[Node] = set()
    for result in dict.fromkeys(results):
        if peel_node(result, PEEL_SHAPES_AND_COPIES).opcode == "concatenate":
            array = _Parts(graph, result).array()
            if array is not None and array.source not in sources:
                sources.add(array.source)
                found.append(array)
    return found


@dataclass
class _Parts:
    """The parts of a value, found from the value upwards."""

    graph: FlatGraph
    result: Node
    source: Node | None = None
    updates: list[UpdatedPart] = field(default_factory=list[UpdatedPart])
    inside: set[Node] = field(default_factory=set[Node])

    def array(self) -> ReassembledArray | None:
        """The reassembled array; None where a part is anything else than the array's own."""
        if not self._take(self.result, self.result.shape.strided_dimensions, 0) or not self.updates:
            return None
        assert self.source is not None, "every part is one of the source's"
        order = sorted(self.updates, key=lambda part: part.update.index)
        updates = {part.update for part in order}
        if len(updates) < len(order) or not self._is_read_by_parts(updates):
            return None
        return ReassembledArray(self.source, self.result, tuple(order), frozenset(self.inside))

    def _is_read_by_parts(self, updates: set[Node]) -> bool:
        """Whether nothing but the updated parts has users elsewhere; of several updates of a part, the last one."""
        return all(
            node is self.result
            or (node in updates and not _is_updated_again(node))
            or self.inside.issuperset(node.users)
            for node in self.inside
        )

    def _take(self, node: Node, dimensions: Sequence[Dimension], offset: int) -> bool:
        """Whether a value is this part of the source, with updates.

        Args:
            dimensions: of the value, over the result's buffer.
            offset: of its first element there.
        """
        if node.has_control_predecessors or node.shape.element_type != self.result.shape.element_type:
            return False
        if node.opcode == "concatenate":
            self.inside.add(node)
            (along,) = node.proto.dimensions[:]
            for operand in node.operands:
                size, stride = operand.shape.dimensions[along], dimensions[along][1]
                part = [*dimensions[:along], (size, stride), *dimensions[along + 1 :]]
                if not self._take(operand, part, offset):
                    return False
                offset += size * stride
            return True
        if node.opcode == _UPDATE:
            self.inside.add(node)
            part = self._updated_part(node, dimensions, offset)
            if part is None:
                return False
            self.updates.append(part)
            return self._take(node.operands[0], dimensions, offset)
        if node.opcode in PEEL_SHAPES_AND_COPIES and _is_same_memory(node):
            self.inside.add(node)
            (operand,) = node.operands
            strides = [stride for _, stride in dimensions]
            moved = rebase_dimensions(operand.shape.strided_dimensions, node.shape, strides)
            return moved is not None and self._take(operand, moved, offset)
        return self._is_part_of_source(node, dimensions, offset)

    def _is_part_of_source(self, node: Node, dimensions: Sequence[Dimension], offset: int) -> bool:
        view = full_view(node)
        while not is_parameter_element(view.node) and view.node.opcode != "parameter":
            peeled = peel(view, _PEEL_PARTS)
            if peeled is None:
                return False
            view = peeled
        if self.source not in (None, view.node) or view.node.shape != self.result.shape:
            return False
        self.source = view.node
        return view.offset == offset and all(
            size == other and (size == 1 or stride == own)
            for (size, stride), (other, own) in zip(view.dimensions, dimensions, strict=True)
        )

    def _updated_part(self, update: Node, dimensions: Sequence[Dimension], offset: int) -> UpdatedPart | None:
        """The update of a part as one of the array: each dimension is one of the array's."""
        whole = self.result.shape
        first, own = element_indices(offset, whole), list[int | None]([None] * len(whole.dimensions))
        rows, starts = update.operands[1].shape, update.operands[2:]
        for number, dimension in enumerate(dimensions):
            if dimension[0] == 1:
                continue
            pieces = split_dimension(dimension, whole)
            if pieces is None or len(pieces) != 1:
                return None
            size, along, step = pieces[0]
            # An update is clamped to the part; only where that is the array's end, too, may its index vary.
            is_whole = size == whole.dimensions[along]
            if step != 1 or not (is_whole or rows.dimensions[number] == size):
                return None
            own[along] = number
        if (
            len({start.shape.element_type for start in starts}) != 1
            or starts[0].shape.element_type not in INTEGER_FIELDS
        ):
            return None
        part = UpdatedPart(update, tuple(first), tuple(own))
        is_same = all(_has_memory_of(shape, part, whole) for shape in (rows, update.shape))
        return part if is_same else None


def _has_memory_of(shape: Shape, part: UpdatedPart, whole: Shape) -> bool:
    """Whether the bytes are the same with the array's dimensions."""
    same = Shape(shape.element_type, part.sizes(shape), whole.minor_to_major)
    return same.elements == shape.elements and all(
        own is None or size == 1 or shape.strides[own] == stride
        for own, size, stride in zip(part.own, same.dimensions, same.strides, strict=True)
    )


def _is_same_memory(node: Node) -> bool:
    """Whether a value has its operand's bytes in the same order; a reshape's dimensions are in memory order."""
    if node.opcode == "bitcast":
        return True
    shapes = node.shape, node.operands[0].shape
    if node.opcode == "reshape":
        return all(shape.minor_to_major == tuple(reversed(range(len(shape.dimensions)))) for shape in shapes)
    return shapes[0].minor_to_major == shapes[1].minor_to_major


def _is_updated_again(node: Node) -> bool:
    return any(_UPDATE == _next(user).opcode for user in node.users)


def _next(node: Node) -> Node:
    while node.opcode in PEEL_SHAPES_AND_COPIES and len(node.users) == 1:
        node = node.users[0]
    return node
