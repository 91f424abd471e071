"""Updated stacks: the arrays of which a loop takes one slice in each iteration and gives it back with changed rows.

That is a scan with a cache for each layer, as xs and as ys. XLA gives the loop two stacks: one that is read, and one
that is written. They may be one buffer where no slice is read after it was written and where every slice is written.
XLA may widen a slice of half precision, update it in f32 and round it back, which rounds nothing but the new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo_dispatch.analysis.binding_time import is_parameter_element
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.loop_indices import integer_of, loop_indices
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS_AND_COPIES, is_widening, peel_node
from hlo_dispatch.ir.shape import HALF_TYPES, Shape

_UPDATE = "dynamic-update-slice"
_MADE_OF_A_SLICE = PEEL_BITCASTS_AND_COPIES | {"convert", "dynamic-slice", _UPDATE}
_FIRST_INDEX = {"dynamic-slice": 1, _UPDATE: 2}
"""Opcode → number of the operand that is the first start index."""


@dataclass(frozen=True)
class UpdatedStack:
    """Two elements of a loop's state, which may become one."""

    source: Node
    """The element of the state that the slices are read from."""
    target: Node
    """The element that the changed slices are written to."""
    reads: tuple[Node, ...]
    """What is read of slices."""
    base: Node
    """The slice that is updated."""
    updates: tuple[Node, ...]
    """Its updates, in order; the last one is the changed slice, or what that is rounded from."""
    changed: tuple[Node, ...]
    """The values that are equal to the changed slice: XLA updates several copies of a slice that is used as it was."""
    inside: frozenset[Node]
    """What nothing but these updates and the write uses: slices, their copies and bitcasts."""
    write: Node
    """The update that writes the changed slice."""

    @property
    def index(self) -> Node:
        """Number of the slice that is written."""
        return self.write.operands[2]


def find_updated_stacks(graph: FlatGraph, trips: int, initial: Callable[[int], int | None]) -> list[UpdatedStack]:
    """The updated stacks of a loop body whose root is a tuple.

    Args:
        trips: trip count.
        initial: as `loop_indices` takes it.
    """
    found: list[UpdatedStack] = []
    sources: set[Node] = set()
    for number, write in enumerate(graph.root.operands):
        stack = _updated_stack(graph, number, write)
        if stack is not None and stack.source not in sources and _may_be_one(graph, stack, trips, initial):
            sources.add(stack.source)
            found.append(stack)
    return found


def _updated_stack(graph: FlatGraph, number: int, write: Node) -> UpdatedStack | None:
    """The stacks that an element of the result may be written to and come from, by their shapes and users."""
    root = graph.root
    if write.opcode != _UPDATE or write.users != [root] or not _is_slice(write, write.operands[1].shape):
        return None
    target = write.operands[0]
    if target.users != [write] or not is_parameter_element(target) or target.proto.tuple_index != number:
        return None
    updates, base = _updates_of_a_slice(write)
    source = base.operands[0] if base.opcode == "dynamic-slice" else None
    if not updates or source is None or source.shape != target.shape or not _is_carried_unchanged(graph, source):
        return None
    reads = tuple(user for user in source.users if user is not root)
    if not _is_slice(base, base.shape) or not all(_is_part_of_slice(read) for read in reads):
        return None
    if not all(_is_update_of_slice(update, write) for update in updates):
        return None
    changed = _changed_slices(graph, write)
    inside = _inside(write, changed)
    if not inside.union(changed).issuperset(updates):
        return None  # something else reads a slice between two updates
    return UpdatedStack(source, target, reads, base, tuple(updates), tuple(changed), frozenset(inside), write)


def _updates_of_a_slice(write: Node) -> tuple[list[Node], Node]:
    """(the updates that make the written slice, in order, the value that the first one updates)."""
    updates: list[Node] = []
    node, element_type = write.operands[1], write.shape.element_type
    while node.opcode == _UPDATE or node.opcode in PEEL_BITCASTS_AND_COPIES or _is_wider_or_back(node, element_type):
        if node.opcode == _UPDATE:
            updates.insert(0, node)
        node = node.operands[0]
    return updates, node


def _is_wider_or_back(node: Node, element_type: str) -> bool:
    """Whether a value is another one, of this half precision, in f32, or one in f32 rounded to it."""
    if element_type not in HALF_TYPES or node.opcode != "convert":
        return False
    return {element_type, "f32"} == {node.shape.element_type, node.operands[0].shape.element_type}


def _changed_slices(graph: FlatGraph, write: Node) -> list[Node]:
    """The value that a write writes, and those that are equal to it."""
    changed = peel_node(write.operands[1], PEEL_BITCASTS_AND_COPIES)
    while changed.opcode == "convert" and is_widening(changed.operands[0]):
        source = changed.operands[0].operands[0]
        if source.shape.element_type != changed.shape.element_type:
            break
        changed = peel_node(source, PEEL_BITCASTS_AND_COPIES)
    return [changed, *(_equal_values(graph, changed) if changed.opcode == _UPDATE else ())]


def _equal_values(graph: FlatGraph, update: Node) -> list[Node]:
    """The other updates that compute the same value from copies of the same one, in single steps."""
    if peel_node(update.operands[0], PEEL_BITCASTS_AND_COPIES).opcode == _UPDATE:
        return []
    return [
        node
        for node in graph.nodes
        if node is not update
        and node.opcode == _UPDATE
        and node.shape == update.shape
        and node.operands[1:] == update.operands[1:]
        and peel_node(node.operands[0], PEEL_BITCASTS_AND_COPIES)
        is peel_node(update.operands[0], PEEL_BITCASTS_AND_COPIES)
    ]


def _inside(write: Node, changed: Sequence[Node]) -> set[Node]:
    """What only the write and the updates in `changed` use, above them and between them and the write."""
    covered = {write, *changed}
    inside: set[Node] = set()
    pending = [write.operands[1], *(node.operands[0] for node in changed)]
    while pending:
        node = pending.pop()
        if node.opcode not in _MADE_OF_A_SLICE or node in covered:
            continue
        if all(user in covered and _is_changed_by(user, node, write) for user in node.users):
            covered.add(node)
            inside.add(node)
            pending += node.operands[:1]
    return inside


def _is_changed_by(user: Node, node: Node, write: Node) -> bool:
    """Whether an instruction has a value in no other role than as the slice that is changed, copied or written."""
    return user.operands.count(node) == 1 and user.operands[user is write] is node


def _is_carried_unchanged(graph: FlatGraph, element: Node) -> bool:
    operands = graph.root.operands
    return (
        is_parameter_element(element)
        and operands[element.proto.tuple_index] is element
        and operands.count(element) == 1
    )


def _may_be_one(graph: FlatGraph, stack: UpdatedStack, trips: int, initial: Callable[[int], int | None]) -> bool:
    """Whether every slice is written once, after the last time that it is read."""
    count = stack.target.shape.dimensions[0]
    indices = loop_indices(graph, trips, initial, [stack.index, *(read.operands[1] for read in stack.reads)])
    if indices is None:
        return False
    written, *read = [[min(max(index, 0), count - 1) for index in values] for values in indices]
    if sorted(written) != list(range(count)):
        return False
    when = {index: iteration for iteration, index in enumerate(written)}
    if any(when[index] < iteration for values in read for iteration, index in enumerate(values)):
        return False
    return read[stack.reads.index(stack.base)] == written


def _is_slice(node: Node, part: Shape) -> bool:
    """Whether a dynamic-slice or an update concerns one whole slice of a stack, which is contiguous."""
    stack, first = node.operands[0].shape, _FIRST_INDEX[node.opcode]
    others = node.operands[first + 1 :]
    return (
        part.dimensions == (1, *stack.dimensions[1:])
        and stack.minor_to_major[-1] == 0
        and part.minor_to_major == stack.minor_to_major
        and len(others) > 0
        and all(_is_zero(index) for index in others)
    )


def _is_part_of_slice(read: Node) -> bool:
    """Whether a value is read from a single slice of a stack."""
    return read.opcode == "dynamic-slice" and read.shape.dimensions[0] == 1


def _is_update_of_slice(update: Node, write: Node) -> bool:
    """Whether an update's shape is that of a slice of the stack, with or without the dimension of size 1."""
    shape, stack, indices = update.shape, write.shape, (*update.operands[2:], *write.operands[2:])
    if update.operands[1].shape.minor_to_major != shape.minor_to_major or len(shape.dimensions) == 0:
        return False
    if len({index.shape.element_type for index in indices}) > 1:
        return False
    if len(shape.dimensions) == len(stack.dimensions):
        return shape.dimensions == (1, *stack.dimensions[1:]) and shape.minor_to_major == stack.minor_to_major
    order = tuple(dimension - 1 for dimension in stack.minor_to_major[:-1])
    return shape.dimensions == stack.dimensions[1:] and shape.minor_to_major == order


def _is_zero(node: Node) -> bool:
    return node.opcode == "constant" and integer_of(node.proto.literal, node.shape.element_type) == 0
