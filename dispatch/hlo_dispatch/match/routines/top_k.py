"""The largest of rows, where XLA has no TopK for their type: the first of a whole sort of numbers and their places.

sorted, places = sort(x, iota), the largest first, in total order
slice(sorted), slice(places): the first of each row
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
    """The match of a sort of which the first numbers of each row are used alone; None: it is none."""
    if len(node.operands) != 2 or node.operands[0].shape.element_type not in routine.numerics:
        return None
    values, places = node.operands
    if places.opcode != "iota" or places.shape.element_type != "s32" or order_of_rows(node, graph) != Order(True, True):
        return None
    *ahead, length = values.shape.dimensions
    if places.proto.dimensions[:] != [len(ahead)] or node.is_live_out:
        return None
    results: list[Node | None] = [None, None]
    counts = set[int]()
    for part in node.users:
        first = part.users[0] if len(part.users) == 1 and part.opcode == "get-tuple-element" else None
        if first is None or first.opcode != "slice" or part.is_live_out:
            return None
        if part.has_control_predecessors or first.has_control_predecessors:
            return None
        cuts = [(cut.start, cut.limit, cut.stride) for cut in first.proto.slice_dimensions[:]]
        if cuts[:-1] != [(0, size, 1) for size in ahead] or cuts[-1][::2] != (0, 1):
            return None
        results[part.proto.tuple_index] = first
        counts.add(cuts[-1][1])
    if len(counts) != 1 or not counts.isdisjoint((0, length)) or node.has_control_predecessors:
        return None
    found = (*ahead, *counts)
    shapes = (row_major(values.shape.element_type, found), row_major("s32", found))
    if any(result is not None and result.shape != shape for result, shape in zip(results, shapes, strict=True)):
        return None
    covered = {node, *node.users, *(result for result in results if result is not None)}
    call = LibraryCall(routine, {}, tuple(shape.strided_dimensions for shape in shapes), 0)
    members = sorted(covered, key=lambda member: member.index)
    return match_of_call(call, node, (full_view(values),), results, shapes, members)
