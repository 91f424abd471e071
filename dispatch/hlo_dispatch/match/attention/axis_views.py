"""Axis views: strided views along the axes of one attention, and why they end a match attempt.

The dimensions of such a view are the axes (batches, queries and keys first), then the value's other dimensions. XLA
reshapes and transposes between the two products; peeling turns those instructions into strides. Where one splits an
axis (grouped heads), `AxisSplit` restarts the match with two axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import (
    PEEL_BROADCASTS,
    PEEL_LAYOUTS,
    PEEL_SLICES,
    PEEL_WIDENING,
    PeelingPolicy,
)
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    DimensionSplit,
    View,
    merge_dimensions,
    operand_view,
    peel_or_split,
)
from hlo_dispatch.errors import Refusal

PEEL_POSITIONS: PeelingPolicy = PEEL_LAYOUTS | PEEL_BROADCASTS | PEEL_SLICES
PEEL_OPERANDS: PeelingPolicy = PEEL_POSITIONS | PEEL_WIDENING


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


def axis_view(node: Node, dimensions: Sequence[Dimension], offset: int = 0) -> View:
    """The view with stride 0 for axes of one element, as for those along which it repeats."""
    return View(node, tuple((size, stride if size > 1 else 0) for size, stride in dimensions), offset)


def along_axes(found: View | DimensionSplit | None) -> View | None:
    """The view, where it exists along the axes.

    Raises:
        AxisSplit: it would along others.
    """
    if isinstance(found, DimensionSplit):
        raise AxisSplit(found.number, found.sizes)
    return found


def peeled_along_axes(view: View, policy: PeelingPolicy) -> list[View]:
    """The view and every peeled one, nearest first.

    Raises:
        AxisSplit: one of them needs other axes.
    """
    found = [view]
    while (further := along_axes(peel_or_split(found[-1], policy))) is not None:
        found.append(further)
    return found


def operand_along_axes(view: View, operand: Node) -> View:
    """The view over an operand of the node, an elementwise instruction.

    Raises:
        NotAttention: there is none.
        AxisSplit: the operand needs other axes.
    """
    found = along_axes(operand_view(view, operand))
    if found is None:
        raise NotAttention
    return found


def merged(view: View, axes: Sequence[int]) -> Dimension | None:
    """Axes of the view, slowest first, as one dimension; None: no single stride walks over them."""
    return merge_dimensions(reversed([view.dimensions[axis] for axis in axes]))


def with_one_inner_dimension(view: View, count: int) -> View | None:
    """The view with one dimension behind its `count` axes; None: they do not lie behind one another."""
    last = merge_dimensions(reversed(view.dimensions[count:]))
    return None if last is None else axis_view(view.node, (*view.dimensions[:count], last), view.offset)
