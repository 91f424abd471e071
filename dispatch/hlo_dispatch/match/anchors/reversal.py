"""Reversal peeling: peels `reverse` and tracks which dimensions of the view are then reversed."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_LAYOUTS, PEEL_REVERSALS, PeelingPolicy, peel_node
from hlo_dispatch.analysis.strided_view import Dimension, View, dimension_number, operand_view, peel, rebase_dimensions
from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.epilogue.steps import Step

ReversedDimensions = frozenset[int]
"""Numbers of the view's dimensions that are read in reverse."""


def peeled_views_with_reversal(
    view: View, policy: PeelingPolicy, results: AbstractSet[Node]
) -> list[tuple[View, ReversedDimensions]]:
    """`view` and every peeled view, nearest first, with its reversed dimensions.

    Args:
        policy: what to peel besides `reverse`.
        results: results of calls, in front of which values may not exist.
    """
    found = [view]
    while True:
        node = found[-1].node
        is_rounded = _changes_no_value(node)
        further = (
            operand_view(found[-1], node.operands[0])
            if is_rounded
            else peel(found[-1], policy | PEEL_REVERSALS, results)
        )
        if not isinstance(further, View):
            return [_turned(view) for view in found]
        found.append(further)


def reversing_step(value: Node, destination: tuple[Dimension, ...], window: int, backwards: int) -> Step | None:
    """The epilogue step for a `reverse` of the kernel's whole window, which the kernel applies as it writes weights.

    Args:
        destination: the kernel's weights over the value's buffer.
        window: how many of their last dimensions are the window's.
        backwards: 1 where the kernel writes them back to front already.
    """
    user = value.users[0]
    if user.opcode != "reverse":
        return None
    turned = {number for number in user.proto.dimensions[:] if user.shape.dimensions[number] > 1}
    if turned != {dimension_number(dimension, value) for dimension in destination[-window:] if dimension[0] > 1}:
        return None
    moved = rebase_dimensions(destination, value.shape, user.shape.strides)
    return None if moved is None else Step((user,), (), moved, {"weights_reversed": 1 - backwards})


def peeled_window_views(
    weights: View, window: int, policy: PeelingPolicy, results: AbstractSet[Node]
) -> list[tuple[View, bool]]:
    """The peeled views of weights, nearest first, and whether their whole window is reversed.

    Args:
        window: how many of the last dimensions are the window's.
    """
    first = len(weights.dimensions) - window
    all_backwards = ReversedDimensions(n for n in range(first, len(weights.dimensions)) if weights.dimensions[n][0] > 1)
    # A kernel has no attribute for a partly reversed window.
    return [
        (view, bool(backwards))
        for view, backwards in peeled_views_with_reversal(weights, policy, results)
        if backwards in (all_backwards, ReversedDimensions())
    ]


def _turned(view: View) -> tuple[View, ReversedDimensions]:
    """The view with all dimensions forwards, and those that were reversed."""
    if not view.offset:
        return view, ReversedDimensions()
    backwards = ReversedDimensions(n for n, (size, stride) in enumerate(view.dimensions) if stride < 0 and size > 1)
    return View(view.node, tuple((size, abs(stride)) for size, stride in view.dimensions)), backwards


def _changes_no_value(node: Node) -> bool:
    """Whether the node rounds to the half precision type from which the value was widened."""
    if node.opcode != "convert" or node.shape.element_type not in HALF_TYPES:
        return False
    source = peel_node(node.operands[0], PEEL_LAYOUTS | PEEL_REVERSALS)
    return source.opcode == "convert" and source.operands[0].shape.element_type == node.shape.element_type
