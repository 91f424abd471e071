"""The largest of rows that XLA finds by sorting them: some of the first of a whole sort, alone or with their places.

sorted, places = sort(x, iota), the largest first, in total order
slice(sorted), slice(places): the first of each row, or later ones

XLA has no TopK of f64, and a slice behind a TopK, such as its last number, becomes one of the sort.
"""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.strided_view import full_view
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.match.match import LibraryCall, Match
from hlo_dispatch.match.routines.routine_match import match_of_call
from hlo_dispatch.match.routines.sort import Order, order_of_rows
from hlo_dispatch.pattern import Routine


def largest_of_sorted(node: Node, graph: FlatGraph, routine: Routine) -> Match | None:
    """The match of a sort of which a few of the first numbers of each row are used alone; None: it is none."""
    values, *along = node.operands
    if len(along) > 1 or not all(map(_are_places, along)) or values.shape.element_type not in routine.numerics:
        return None
    if order_of_rows(node, graph) != Order(True, True) or node.is_live_out or node.has_control_predecessors:
        return None
    parts = node.users if along else [node]
    slices = [_slice_of(part) for part in parts]
    ranges = {None if few is None else _range_of(few) for few in slices}
    found = next(iter(ranges)) if len(ranges) == 1 else None
    *ahead, length = values.shape.dimensions
    if found is None or not found[0] < found[1] < length:
        return None
    start, limit = found
    few = (*ahead, limit - start)
    shapes = (row_major(values.shape.element_type, few), row_major("s32", few))
    results: list[Node | None] = [None, None]
    for part, result in zip(parts, slices, strict=True):
        results[part.proto.tuple_index if along else 0] = result
    if any(result is not None and result.shape != shape for result, shape in zip(results, shapes, strict=True)):
        return None
    covered = {node, *parts, *(result for result in results if result is not None)}
    options = {"skipped": start} if start else {}
    call = LibraryCall(routine, options, tuple(shape.strided_dimensions for shape in shapes), 0)
    members = sorted(covered, key=lambda member: member.index)
    return match_of_call(call, node, (full_view(values),), results, shapes, members)


def _are_places(node: Node) -> bool:
    """Whether it numbers the elements of each row."""
    last = len(node.shape.dimensions) - 1
    return node.opcode == "iota" and node.shape.element_type == "s32" and node.proto.dimensions[:] == [last]


def _slice_of(part: Node) -> Node | None:
    """The slice that is the only user of a sort, or of one of its results."""
    if part.opcode not in ("sort", "get-tuple-element") or len(part.users) != 1 or part.is_live_out:
        return None
    (user,) = part.users
    is_waiting = part.has_control_predecessors or user.has_control_predecessors
    return user if user.opcode == "slice" and not is_waiting else None


def _range_of(few: Node) -> tuple[int, int] | None:
    """The numbers of each row that a slice takes, first and behind the last; None: it takes others."""
    *ahead, last = few.proto.slice_dimensions[:]
    is_whole = all(
        (cut.start, cut.limit, cut.stride) == (0, size, 1)
        for cut, size in zip(ahead, few.operands[0].shape.dimensions, strict=False)
    )
    return (last.start, last.limit) if is_whole and last.stride == 1 else None
