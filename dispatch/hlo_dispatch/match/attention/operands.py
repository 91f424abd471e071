"""Attention operands: views of queries, keys, values and the result along the attention's axes.

XLA copies each of them into the layout that its products prefer. The kernel reads them in front of those copies:
transposes of heads, broadcasts of grouped heads and slices of one product for all three are peeled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import PEEL_LAYOUTS, Dimension, merge_dimensions, split_dimension
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.attention.axes import KEY, Axes, free, numbers
from hlo_dispatch.match.attention.placement import (
    FLOATING,
    PEEL_BROADCASTS,
    PEEL_ROUNDING,
    PEEL_SLICES,
    PEEL_WIDENING,
    AxisSplit,
    NotAttention,
    Placement,
    make_placement,
    peel_placement,
    rebase_placement,
)
from hlo_dispatch.match.elementwise_region import scalar_constant

_PEELING_POLICY = PEEL_LAYOUTS | PEEL_BROADCASTS | PEEL_SLICES | PEEL_WIDENING


class Products(NamedTuple):
    """Operands and result of both products: axes first, then the contracted dimension or the head size."""

    query: Placement
    key: Placement
    value: Placement
    result: Placement


def match_products(first: Placement, second: Node, side: int, axes: Axes) -> Products:
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


def _dimension_of(placement: Placement, axis: int) -> tuple[int, int] | None:
    """The one dimension of the view's node that contains an axis, and the step within it; None: one element."""
    size, stride = placement.dimensions[axis]
    if size == 1:
        return None
    parts = split_dimension((size, stride), placement.node.shape)
    if not parts:
        raise _unsupported_call(placement.node, "its dimensions cannot be told apart behind it")
    if len(parts) > 1:
        raise AxisSplit(axis, [part for part, _, _ in reversed(parts)])
    return parts[0][1:]


def _score_product_operand(
    product: Node, side: int, numbers_and_steps: Sequence[tuple[int, int] | None], axes: Axes
) -> Placement:
    """An operand of the first product: its axes, then the contracted dimensions."""
    operand = product.operands[side]
    batch, contracting = numbers(product, side)
    own = free(product, side)
    begin = len(batch) + (0 if side == 0 else len(free(product, 0)))
    numbered = {number: dimension for number, dimension in enumerate(batch)}
    numbered |= {begin + number: dimension for number, dimension in enumerate(own)}
    dimensions: list[Dimension] = []
    for size, located in zip(axes.sizes, numbers_and_steps, strict=True):
        dimension = None if located is None else numbered.get(located[0])
        stride = 0 if located is None or dimension is None else operand.shape.strides[dimension] * located[1]
        dimensions.append((size, stride))
    return make_placement(operand, [*dimensions, *(operand.shape.strided_dimensions[number] for number in contracting)])


def _value(product: Node, side: int, axes: Axes) -> Placement:
    other = product.operands[1 - side]
    strides = [0] * len(axes.parts)
    for own, others in zip(numbers(product, side), numbers(product, 1 - side), strict=True):
        for number, dimension in zip(own, others, strict=True):
            strides[number] = other.shape.strides[dimension]
    return make_placement(
        other, [*axes.along(strides), *(other.shape.strided_dimensions[number] for number in free(product, 1 - side))]
    )


def _result(product: Node, side: int, axes: Axes) -> Placement:
    shape = product.shape
    batch, _ = numbers(product, side)
    own, others = free(product, side), free(product, 1 - side)
    behind = len(batch)
    begin, begin_others = (behind, behind + len(own)) if side == 0 else (behind + len(others), behind)
    strides = [0] * len(axes.parts)
    for index, number in enumerate(batch):
        strides[number] = shape.strides[index]
    for index, number in enumerate(own):
        strides[number] = shape.strides[begin + index]
    return make_placement(
        product, [*axes.along(strides), *(shape.strided_dimensions[begin_others + n] for n in range(len(others)))]
    )


def _unsupported_call(product: Node, why: str) -> NotAttention:
    return NotAttention(Refusal("dot-dimensions", f"%{product.name}: {why}", product.name))


# --- towards operands-------------------------------------------------------------------------------------------


def fully_peeled(placement: Placement, count: int, unsplittable: frozenset[int]) -> Placement:
    """The furthest peeled view of the operand, with a contiguous last dimension if there is such a view.

    Args:
        count: how many axes there are; what follows is one dimension to the kernel.
        fixed: axes that are not split for the sake of a repeat.

    Raises:
        NotAttention: what follows the axes is no one dimension.
        AxisSplit: heads are repeated in groups.
    """
    views = [placement]
    while True:
        try:
            further = peel_placement(views[-1], _PEELING_POLICY)
        except AxisSplit as split:
            if views[-1].node.opcode != "broadcast" or split.axis >= count or split.axis in unsplittable:
                break
            raise
        if further is None:
            break
        views.append(further)
    known = [view for view in (_as_one(view, count) for view in views) if view is not None]
    if not known:
        raise NotAttention(
            Refusal("dot-dimensions", f"%{placement.node.name} has several dimensions there", placement.node.name)
        )
    contiguous = [view for view in known if view.dimensions[-1][1] <= 1]
    return (contiguous or known)[-1]


def _as_one(placement: Placement, count: int) -> Placement | None:
    """The view with one dimension behind its axes."""
    last = merge_dimensions(reversed(placement.dimensions[count:]))
    return (
        None
        if last is None
        else make_placement(placement.node, (*placement.dimensions[:count], last), placement.offset)
    )


def materialized(placement: Placement) -> Placement:
    """The view over a bitcast of the same bytes that is in memory, if there is one."""
    if placement.node.top_level_id is not None:
        return placement
    for user in placement.node.users:
        if (
            user.opcode == "bitcast"
            and user.top_level_id is not None
            and user.shape.element_type == placement.node.shape.element_type
        ):
            return placement._replace(node=user)
    return placement


def peel_scale(placement: Placement) -> tuple[Placement, float]:
    """The queries in front of a scale, as models write it ahead of the product, and the scale."""
    rounded = placement.node
    product = rounded.operands[0] if rounded.opcode == "convert" else rounded
    if product.opcode != "multiply" or any(o.shape.strides != rounded.shape.strides for o in product.operands):
        return placement, 1.0
    for number in (0, 1):
        factor, other = scalar_constant(product.operands[number]), product.operands[1 - number]
        if rounded is not product and other.opcode == "convert":
            other = other.operands[0]
        same_type = other.shape.element_type == rounded.shape.element_type
        if factor is not None and same_type and other.shape.strides == rounded.shape.strides:
            return placement._replace(node=other), factor
    return placement, 1.0


# --- towards users --------------------------------------------------------------------------------------------


def follow_user(placement: Placement, user: Node, *, widens: bool) -> Placement | None:
    """The view over the result of a user that only changes layout or rounds; None: it does something else.

    Args:
        widens: whether a rounding may be undone, which loses it: something follows that rounds again.
    """
    source = placement.node.shape
    if user.proto.control_predecessor_ids or user.opcode not in PEEL_LAYOUTS | PEEL_ROUNDING:
        return None
    kind = user.shape.element_type
    if kind != source.element_type:
        is_rounded = source.element_type in FLOATING and (kind in HALF_TYPES or (widens and kind == "f32"))
        if user.opcode not in PEEL_ROUNDING or not is_rounded:
            return None
    if user.opcode == "bitcast":
        return placement._replace(node=user)
    strides = list(user.shape.strides)
    if user.opcode == "transpose":
        for number, dimension in enumerate(user.proto.dimensions[:]):
            strides[dimension] = user.shape.strides[number]
    try:
        return rebase_placement(placement, user, strides)
    except AxisSplit:
        return None
