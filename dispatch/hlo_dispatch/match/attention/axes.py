"""Axes of an attention: batches, queries and keys, one or several of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hlo_dispatch.analysis.dot_dimensions import dot_dimensions
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View, merge_dimensions
from hlo_dispatch.match.attention.axis_views import AxisSplit, axis_view

BATCH, QUERY, KEY = "batch", "query", "key"
_MAX_AXES = 12


@dataclass(frozen=True)
class Axes:
    """The decomposition of each dimension of the softmax's result, as the second product reads it, into axes."""

    kinds: tuple[str, ...]
    """Per dimension: its kind in the second product, which contracts keys and whose values have no queries."""
    parts: tuple[tuple[int, ...], ...]
    """Per dimension: the sizes of its axes, slowest first."""

    @classmethod
    def of(cls, product: Node, side: int) -> Axes:
        """The axes of the product whose operand number `side` is the softmax's result."""
        weights = product.operands[side]
        dimensions = dot_dimensions(product)[side]
        kinds = dict.fromkeys(dimensions.free, QUERY) | dict.fromkeys(dimensions.batch, BATCH)
        kinds |= dict.fromkeys(dimensions.contracting, KEY)
        return cls(tuple(kinds[n] for n in range(len(kinds))), tuple((size,) for size in weights.shape.dimensions))

    def split(self, split: AxisSplit) -> Axes | None:
        """The axes with one of them split; None: that is impossible."""
        if split.axis >= len(self.owners) or math.prod(split.sizes) != self.sizes[split.axis]:
            return None
        dimension, index = self.owners[split.axis]
        sizes = self.parts[dimension]
        parts = list(self.parts)
        parts[dimension] = (*sizes[:index], *split.sizes, *sizes[index + 1 :])
        found = Axes(self.kinds, tuple(parts))
        return found if len(found.sizes) <= _MAX_AXES else None

    @cached_property
    def owners(self) -> tuple[tuple[int, int], ...]:
        """For each axis: its dimension, and its index among that dimension's axes."""
        return tuple((number, index) for number, sizes in enumerate(self.parts) for index in range(len(sizes)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for sizes in self.parts for size in sizes)

    def of_kind(self, kind: str) -> list[int]:
        """Numbers of the axes of this kind with more than one element."""
        return [
            axis for axis, (number, _) in enumerate(self.owners) if self.kinds[number] == kind and self.sizes[axis] > 1
        ]

    def along(self, strides: Sequence[int]) -> tuple[Dimension, ...]:
        """The axes over a buffer in which the dimensions have these strides."""
        found: list[Dimension] = []
        for sizes, stride in zip(self.parts, strides, strict=True):
            inner = math.prod(sizes)
            for size in sizes:
                inner //= size
                found.append((size, stride * inner if size > 1 else 0))
        return tuple(found)

    def start(self, weights: Node) -> View:
        """The view of the softmax's result that the second product reads."""
        return axis_view(weights, self.along(weights.shape.strides))

    def keys_over(self, sizes: Sequence[int], strides: Sequence[int]) -> dict[int, int] | None:
        """Strides of the key axes where these dimensions are the keys; None: they are something else.

        Raises:
            AxisSplit: one of the axes is several of the dimensions.
        """
        found: dict[int, int] = {}
        axes = self.of_kind(KEY)
        for size, stride in zip(sizes, strides, strict=True):
            left = size
            while left > 1:
                if not axes:
                    return None
                axis = axes.pop(0)
                if left % self.sizes[axis]:
                    if self.sizes[axis] % left == 0:
                        raise AxisSplit(axis, (left, self.sizes[axis] // left))
                    return None
                left //= self.sizes[axis]
                found[axis] = stride * left
        return None if axes else found

    def is_same_value(self, first: View, second: View) -> bool:
        """Whether both views are the same elements of one node, keys in any order."""
        keys = self.of_kind(KEY)

        def without_order(view: View) -> tuple[object, ...]:
            along_keys = merge_dimensions(sorted((view.dimensions[axis] for axis in keys), key=lambda d: d[1]))
            # Where no single stride walks over them, only the very same order is known to be the same.
            rest = along_keys or tuple(view.dimensions[axis] for axis in keys)
            others = tuple(d for axis, d in enumerate(view.dimensions) if axis not in keys)
            return view.node, view.offset, rest, others

        return without_order(first) == without_order(second)
