"""Operands of binary post-ops: the view from which a kernel reads the other operand."""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_ALL, PEEL_CONVERTS_AND_BROADCASTS
from hlo_dispatch.analysis.strided_view import (
    View,
    full_view,
    operand_view,
    peeled_views,
)
from hlo_dispatch.ir.shape import HALF_TYPES

OperandFinder = Callable[[Node, Node, Collection[str]], View | None]
"""(user, its other operand, element types) → the view from which a kernel reads that operand."""
_SMALL_BYTES = 64 * 1024


def find_operand(
    user: Node,
    other: Node,
    types: Collection[str],
    is_owned: Callable[[Node], bool],
    will_be_result: Callable[[Node], bool],
    results: AbstractSet[Node],
) -> View | None:
    """The view of the other operand of `user` in one of the types: materialized, or small enough to be materialized.

    Where only the value before a rounding to half precision is materialized, that one is read: XLA rounds between the
    steps of half precision programs, and a kernel does not.
    """
    if other.top_level_id is not None and other.opcode not in PEEL_ALL and other.shape.element_type in types:
        return full_view(other)
    exact = [
        view
        for view in peeled_views(full_view(other), PEEL_CONVERTS_AND_BROADCASTS, results)
        if view.element_type in types
    ]
    unrounded = _before_rounding(exact[-1], types, results) if exact else []
    for views in (exact, unrounded):
        for view in reversed(views):
            if (found := in_memory(view, is_owned)) is not None:
                return found
            # A value that XLA widened again is in memory, too, but only behind a separate loop.
            if view is not views[0] and will_be_result(view.node):
                return view
    smallest = min(exact, key=lambda view: view.node.shape.bytes, default=None)
    if smallest is None:
        return None
    if smallest.node.shape.bytes * 8 <= user.shape.bytes or smallest.node.shape.bytes <= _SMALL_BYTES:
        return smallest
    return next((view for view in (*exact, *unrounded) if will_be_result(view.node)), None)


def in_memory(view: View, is_owned: Callable[[Node], bool]) -> View | None:
    """The view over a top-level instruction's result: the node's own, or a bitcast's of the same bytes."""
    if view.node.top_level_id is not None:
        return view
    for user in view.node.users:
        same_bytes = user.opcode == "bitcast" and user.shape.element_type == view.element_type
        if same_bytes and user.top_level_id is not None and not is_owned(user):
            return view._replace(node=user)
    return None


def as_stored_by_call(view: View, results: AbstractSet[Node]) -> View:
    """The view over the rounded value, where a call stores its result only rounded."""
    rounded = next((user for user in view.node.users if user.opcode == "convert" and user in results), None)
    if rounded is None or view.node in results or rounded.shape.strides != view.node.shape.strides:
        return view
    return View(rounded, view.dimensions)


def _before_rounding(view: View, types: Collection[str], results: AbstractSet[Node]) -> list[View]:
    """The usable peeled views of the value that the view's node rounds, nearest first; empty: it rounds nothing."""
    node = view.node
    if node.opcode != "convert" or node.shape.element_type not in HALF_TYPES:
        return []
    source = node.operands[0]
    unrounded = operand_view(view, source)
    if source.shape.element_type != "f32" or not isinstance(unrounded, View):
        return []
    return [
        view for view in peeled_views(unrounded, PEEL_CONVERTS_AND_BROADCASTS, results) if view.element_type in types
    ]
