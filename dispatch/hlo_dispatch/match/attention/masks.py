"""Attention masks: decomposition of a boolean value into positional masks and masks that are read from memory.

query >= key, query <= key + 7          causal and window steps, without a mask in memory
a and b                                 one step per operand, each with its own broadcast
convert(a) != 0                         a: Flax counts with masks
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.match.attention.axes import KEY, QUERY, Axes
from hlo_dispatch.match.attention.axis_views import (
    PEEL_POSITIONS,
    NotAttention,
    operand_along_axes,
    peeled_along_axes,
)
from hlo_dispatch.match.attention.position_sums import PositionSum, constant_mask, position_sum_of

_OPPOSITE = {"GE": "LT", "LT": "GE", "GT": "LE", "LE": "GT"}
# (direction, number) of comparisons that a value of 0 or 1 fulfils where it is 1.
_IS_ONE = frozenset((("NE", 0), ("GT", 0), ("EQ", 1), ("GE", 1)))
_LARGEST_CONSTANT = 1 << 22


class Mask(NamedTuple):
    """One condition under which a score is kept."""

    view: View
    """The view from which it can be read."""
    query: int | None = None
    """The axis it compares keys with; None: none, or it is not made of positions."""
    distance: int | None = None
    """Kept where key <= query + distance, or where `is_lower`, where key > query - distance; None: it is read."""
    is_lower: bool = False


def match_mask(view: View, axes: Axes, *, keeps_true: bool) -> list[Mask]:
    """Decomposes a mask into conditions that must all hold.

    Args:
        keeps_true: whether scores are kept where the value is true, or where it is false.

    Raises:
        NotAttention: it is the opposite of something that would have to be read.
        AxisSplit: an axis is several.
    """
    return _MaskMatcher(axes).read(view, keeps_true=keeps_true)


class _MaskMatcher:
    def __init__(self, axes: Axes) -> None:
        self._axes = axes

    def read(self, view: View, *, keeps_true: bool) -> list[Mask]:
        last = peeled_along_axes(view, PEEL_POSITIONS)[-1]
        node = last.node
        value = scalar_constant(node)
        if value is not None:
            return [] if bool(value) is keeps_true else self._operand(last, keeps_true)
        if node.opcode == "not":
            return self.read(operand_along_axes(last, node.operands[0]), keeps_true=not keeps_true)
        if node.opcode == ("and" if keeps_true else "or"):
            return [
                mask
                for operand in node.operands
                for mask in self.read(operand_along_axes(last, operand), keeps_true=keeps_true)
            ]
        if node.opcode == "compare":
            return self._compared(last, keeps_true)
        if node.opcode == "constant":
            found = self._folded(last, keeps_true)
            if found is not None:
                return [found]
        return self._operand(last, keeps_true)

    def _operand(self, view: View, keeps_true: bool) -> list[Mask]:
        if not keeps_true:
            raise NotAttention
        return [Mask(view)]

    def _compared(self, view: View, keeps_true: bool) -> list[Mask]:
        node = view.node
        direction = node.proto.comparison_direction
        truth = self._counted(node, direction)
        if truth is not None:
            return self.read(operand_along_axes(view, truth), keeps_true=keeps_true)
        sides = [position_sum_of(operand_along_axes(view, operand)) for operand in node.operands]
        if sides[0] is not None and sides[1] is not None and direction in _OPPOSITE:
            position_sum = sides[0].plus(sides[1], -1)
            found = self._by_position(view, position_sum, direction if keeps_true else _OPPOSITE[direction])
            if found is not None:
                return [found]
        return self._operand(view, keeps_true)

    def _counted(self, node: Node, direction: str) -> Node | None:
        """The boolean behind a comparison of it as a number: `convert(a) > 0`."""
        left, right = node.operands
        number = scalar_constant(right)
        while left.opcode == "convert" and left.operands[0].shape.element_type != "pred":
            left = left.operands[0]
        if left.opcode != "convert" or number is None or (direction, number) not in _IS_ONE:
            return None
        return left.operands[0]

    def _by_position(self, view: View, position_sum: PositionSum, direction: str) -> Mask | None:
        """The mask `position_sum` (direction) 0, where it compares one query with one key."""
        if direction in ("LE", "LT"):
            position_sum = position_sum.times(-1)
        bound = position_sum.constant - (direction in ("GT", "LT"))
        used = [axis for axis, factor in enumerate(position_sum.factors) if factor]
        keys = self._axes.of_kind(KEY)
        if len(keys) != 1 or keys[0] not in used or abs(position_sum.factors[keys[0]]) != 1:
            return None
        others = [axis for axis in used if axis not in keys]
        is_lower = position_sum.factors[keys[0]] > 0
        if len(others) > 1 or any(position_sum.factors[axis] != (-1 if is_lower else 1) for axis in others):
            return None
        return Mask(view, others[0] if others else None, bound + is_lower, is_lower)

    def _folded(self, view: View, keeps_true: bool) -> Mask | None:
        """The positional mask that equals a constant."""
        queries, keys = self._axes.of_kind(QUERY), self._axes.of_kind(KEY)
        values = constant_mask(view.node)
        if values is None or values.size > _LARGEST_CONSTANT or len(keys) != 1:
            return None
        varying = [axis for axis, (_, stride) in enumerate(view.dimensions) if stride]
        rows = [axis for axis in varying if axis != keys[0]]
        if keys[0] not in varying or len(rows) > 1 or any(row not in queries for row in rows):
            return None
        order = tuple(reversed(view.node.shape.minor_to_major))
        flat = np.ascontiguousarray(values.transpose(order)).ravel()
        size, stride = view.dimensions[keys[0]]
        count, step = view.dimensions[rows[0]] if rows else (1, 0)
        index = view.offset + step * np.arange(count)[:, None] + stride * np.arange(size)
        kept: Any = flat[index] == keeps_true
        distances: Any = np.arange(size) - np.arange(count)[:, None]
        query = rows[0] if rows else None
        # The only candidates: the largest distance that is kept, and the smallest.
        if not kept.any():
            return None
        largest, smallest = int(distances[kept].max()), int(distances[kept].min())
        if bool((kept == (distances <= largest)).all()):
            return Mask(view, query, largest)
        return Mask(view, query, 1 - smallest, is_lower=True) if bool((kept == (distances >= smallest)).all()) else None
