"""Affine position expressions: values such as `query - key + 7`, as sums of multiples of axis indices.

Positional masks (causal ones, windows) are comparisons of such expressions; XLA writes them with iota, or folds a part
into a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, element_indices, operand_view, split_dimension
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.attention.axis_views import PEEL_POSITIONS, along_axes, peeled_along_axes

_INTEGERS = frozenset(("s32", "f32"))
_MAX_NESTING = 8
# Integers below this are exact in f32 and s32.
_LARGEST = 1 << 24


class PositionSum(NamedTuple):
    """An affine expression of the axis indices: a factor for each axis, and a constant."""

    factors: tuple[int, ...]
    constant: int

    def plus(self, other: PositionSum, sign: int = 1) -> PositionSum:
        factors = (a + sign * b for a, b in zip(self.factors, other.factors, strict=True))
        return PositionSum(tuple(factors), self.constant + sign * other.constant)

    def times(self, factor: int) -> PositionSum:
        return PositionSum(tuple(factor * f for f in self.factors), factor * self.constant)


def position_sum_of(view: View, depth: int = 0) -> PositionSum | None:
    """The view's value as an affine expression of positions; None: it depends on something else."""
    last = peeled_along_axes(view, PEEL_POSITIONS)[-1]
    node = last.node
    value = scalar_constant(node)
    if value is not None:
        is_whole = value == int(value) if np.isfinite(value) else False
        return PositionSum((0,) * len(view.dimensions), int(value)) if is_whole and abs(value) < _LARGEST else None
    if node.opcode == "iota":
        return _along(last, node.proto.dimensions[0], 0, 1)
    if node.opcode == "constant":
        return _counted(last)
    if depth == _MAX_NESTING or node.shape.element_type not in _INTEGERS:
        return None
    if node.opcode not in ("add", "subtract", "multiply", "negate", "convert"):
        return None
    operands = [along_axes(operand_view(last, operand)) for operand in node.operands]
    position_sums = [None if operand is None else position_sum_of(operand, depth + 1) for operand in operands]
    return _combined(
        node.opcode, [position_sum for position_sum in position_sums if position_sum is not None], len(position_sums)
    )


def _combined(opcode: str, position_sums: Sequence[PositionSum], operand_count: int) -> PositionSum | None:
    if len(position_sums) < operand_count:
        return None
    if opcode == "convert":
        return position_sums[0]
    if opcode == "negate":
        return position_sums[0].times(-1)
    if opcode in ("add", "subtract"):
        return position_sums[0].plus(position_sums[1], 1 if opcode == "add" else -1)
    for one, other in (position_sums, position_sums[::-1]):
        if not any(one.factors):
            return other.times(one.constant)
    return None


def _along(view: View, dimension: int, first: int, step: int) -> PositionSum | None:
    """The expression of a value that counts along one dimension of the view's node."""
    shape = view.node.shape
    factors: list[int] = []
    for axis in view.dimensions:
        factor = _steps(axis, shape, dimension)
        if factor is None:
            return None
        factors.append(factor * step)
    return PositionSum(tuple(factors), first + step * element_indices(view.offset, shape)[dimension])


def _steps(axis: tuple[int, int], shape: Shape, dimension: int) -> int | None:
    """The growth of an index along the dimension per step along the axis."""
    size, stride = axis
    if size == 1 or stride == 0:
        return 0
    parts = split_dimension(axis, shape)
    if parts is None:
        return None
    along = [step for _, number, step in parts if number == dimension]
    # An axis over several dimensions counts only where it has this one to itself.
    return 0 if not along else along[0] if len(parts) == 1 else None


def _counted(view: View) -> PositionSum | None:
    """The expression of a one-dimensional constant that is an arithmetic progression."""
    node = view.node
    if node.shape.element_type != "s32" or len(node.shape.dimensions) != 1:
        return None
    values: Any = np.asarray(node.proto.literal.s32s[:], np.int64)
    if len(values) != node.shape.elements or len(values) < 2 or np.abs(values).max() >= _LARGEST:
        return None
    step = int(values[1] - values[0])
    if not bool((values == values[0] + step * np.arange(len(values))).all()):
        return None
    return _along(view, 0, int(values[0]), step)


def constant_mask(node: Node) -> Any | None:
    """A boolean constant as an array; None: it is something else."""
    if node.opcode != "constant" or node.shape.element_type != "pred":
        return None
    values: Any = np.asarray(node.proto.literal.preds[:], bool)
    if len(values) != node.shape.elements:
        return None
    order = tuple(reversed(node.shape.minor_to_major))
    kept = values.reshape([node.shape.dimensions[number] for number in order])
    return kept.transpose([order.index(number) for number in range(len(order))])
