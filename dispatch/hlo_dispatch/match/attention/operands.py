"""Attention operands: views of queries, keys, values and the result along the attention's axes.

XLA copies each of them into the layout that its products prefer. The kernel reads them in front of those copies:
transposes of heads, broadcasts of grouped heads and slices of one product for all three are peeled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hlo_dispatch.analysis.dot_dimensions import dot_dimensions
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING, PEEL_ROUNDING_AND_LAYOUTS
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import (
    DimensionSplit,
    View,
    follow,
    peel_or_split,
    split_dimension,
)
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.shape import FLOAT_TYPES, HALF_TYPES
from hlo_dispatch.match.attention.axes import KEY, Axes
from hlo_dispatch.match.attention.axis_views import (
    PEEL_OPERANDS,
    AxisSplit,
    NotAttention,
    along_axes,
    axis_view,
    with_one_inner_dimension,
)


class Products(NamedTuple):
    """Operands and result of both products: axes first, then the contracted dimension or the head size."""

    query: View
    key: View
    value: View
    result: View


def match_products(first: View, second: Node, side: int, axes: Axes) -> Products:
    """The views of both products' operands, before peeling.

    Args:
        first: the product of queries and keys.
        second: the product whose operand number `side` is the softmax's result.

    Raises:
        NotAttention: the products do not fit each other.
        AxisSplit: an axis is several.
    """
    numbers_and_steps = [_dimension_of(first, axis) for axis in range(len(axes.sizes))]
    sides = [_score_product_operand(first.node, side, numbers_and_steps, axes) for side in (0, 1)]
    keys = axes.of_kind(KEY)
    over_keys = [number for number in (0, 1) if any(sides[number].dimensions[axis][1] for axis in keys)]
    if len(over_keys) != 1 or not all(sides[over_keys[0]].dimensions[axis][1] for axis in keys):
        raise _unsupported_call(first.node, "its operands share the dimensions that the second product sums over")
    return Products(
        sides[1 - over_keys[0]], sides[over_keys[0]], _value(second, side, axes), _result(second, side, axes)
    )


def _dimension_of(view: View, axis: int) -> tuple[int, int] | None:
    """The one dimension of the view's node that contains an axis, and the step within it; None: one element."""
    size, stride = view.dimensions[axis]
    if size == 1:
        return None
    parts = split_dimension((size, stride), view.node.shape)
    if not parts:
        raise _unsupported_call(view.node, "its dimensions cannot be told apart behind it")
    if len(parts) > 1:
        raise AxisSplit(axis, [part for part, _, _ in reversed(parts)])
    return parts[0][1:]


def _score_product_operand(
    product: Node, side: int, numbers_and_steps: Sequence[tuple[int, int] | None], axes: Axes
) -> View:
    """An operand of the first product: its axes, then the contracted dimensions."""
    shape, numbers = product.operands[side].shape, dot_dimensions(product)[side]
    strides = {place: shape.strides[number] for number, place in numbers.in_result.items()}
    located = (found or (-1, 0) for found in numbers_and_steps)
    along = [(size, strides.get(place, 0) * step) for size, (place, step) in zip(axes.sizes, located, strict=True)]
    return axis_view(product.operands[side], [*along, *(shape.strided_dimensions[n] for n in numbers.contracting)])


def _value(product: Node, side: int, axes: Axes) -> View:
    other, dimensions = product.operands[1 - side], dot_dimensions(product)
    own, others = dimensions[side], dimensions[1 - side]
    pairs = zip(own.batch + own.contracting, others.batch + others.contracting, strict=True)
    strides = {number: other.shape.strides[dimension] for number, dimension in pairs}
    along = axes.along([strides.get(number, 0) for number in range(len(axes.parts))])
    return axis_view(other, [*along, *(other.shape.strided_dimensions[number] for number in others.free)])


def _result(product: Node, side: int, axes: Axes) -> View:
    shape, dimensions = product.shape, dot_dimensions(product)
    own, others = dimensions[side].in_result, dimensions[1 - side]
    along = axes.along([shape.strides[own[n]] if n in own else 0 for n in range(len(axes.parts))])
    return axis_view(product, [*along, *(shape.strided_dimensions[others.in_result[n]] for n in others.free)])


def _unsupported_call(product: Node, why: str) -> NotAttention:
    return NotAttention(Refusal("dot-dimensions", f"%{product.name}: {why}", product.name))


# --- towards operands-------------------------------------------------------------------------------------------


def fully_peeled(view: View, count: int, unsplittable: frozenset[int]) -> View:
    """The furthest peeled view of the operand, with a contiguous last dimension if there is such a view.

    Args:
        count: how many axes there are; what follows is one dimension to the kernel.
        unsplittable: axes that are not split for the sake of a repeat.

    Raises:
        NotAttention: what follows the axes is no one dimension.
        AxisSplit: heads are repeated in groups.
    """
    views = [view]
    while True:
        further = peel_or_split(views[-1], PEEL_OPERANDS)
        if isinstance(further, DimensionSplit):
            is_repeated = views[-1].node.opcode == "broadcast" and further.number < count
            further = along_axes(further) if is_repeated and further.number not in unsplittable else None
        if further is None:
            break
        views.append(further)
    known = [one for view in views if (one := with_one_inner_dimension(view, count)) is not None]
    if not known:
        raise NotAttention(Refusal("dot-dimensions", f"%{view.node.name} has several dimensions there", view.node.name))
    contiguous = [view for view in known if view.dimensions[-1][1] <= 1]
    return (contiguous or known)[-1]


def peel_scale(view: View) -> tuple[View, float]:
    """The queries in front of a scale, as models write it ahead of the product, and the scale."""
    rounded = view.node
    product = rounded.operands[0] if rounded.opcode == "convert" else rounded
    if product.opcode != "multiply" or any(o.shape.strides != rounded.shape.strides for o in product.operands):
        return view, 1.0
    for number in (0, 1):
        factor, other = scalar_constant(product.operands[number]), product.operands[1 - number]
        if rounded is not product and other.opcode == "convert":
            other = other.operands[0]
        same_type = other.shape.element_type == rounded.shape.element_type
        if factor is not None and same_type and other.shape.strides == rounded.shape.strides:
            return view._replace(node=other), factor
    return view, 1.0


# --- towards users --------------------------------------------------------------------------------------------


def follow_user(view: View, user: Node, *, widens: bool) -> View | None:
    """The view over the result of a user that only changes layout or rounds; None: it does something else.

    Args:
        widens: whether a rounding may be undone, which loses it: something follows that rounds again.
    """
    kind = user.shape.element_type
    if kind != view.element_type:
        is_rounded = view.element_type in FLOAT_TYPES and (kind in HALF_TYPES or (widens and kind == "f32"))
        if user.opcode not in PEEL_ROUNDING or not is_rounded:
            return None
    return follow(view, user, PEEL_ROUNDING_AND_LAYOUTS)
