"""Slices of stacked weights: values that a loop index selects from a static array, as in a scan over layers."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.shape import Shape

_MAX_SLICES = 256
"""Largest number of slices: each one needs a prepack call in the prologue."""


@dataclass(frozen=True)
class StackedSlice:
    """A slice of a static array along its outermost dimension in memory."""

    stack: int
    """Id of the instruction whose value is the stacked array."""
    shape: Shape
    """Shape of the stacked array."""
    index: int
    """Id of the scalar index; a dynamic-slice clamps it to the first or the last slice."""
    index_shape: Shape

    @property
    def count(self) -> int:
        return self.shape.dimensions[0]


def find_stacked_slices(graph: FlatGraph, static: AbstractSet[Node]) -> Mapping[Node, StackedSlice]:
    """The values of a computation that are contiguous slices of static arrays."""
    found: dict[Node, StackedSlice] = {}
    for node in graph.nodes:
        if node.opcode == "dynamic-slice" and node.operands[0] in static:
            if (stacked_slice := _stacked_slice(node)) is not None:
                found[node] = stacked_slice
        elif node.opcode == "bitcast" and node.operands[0] in found:
            found[node] = found[node.operands[0]]
    return found


def _stacked_slice(node: Node) -> StackedSlice | None:
    stack, index = node.operands[:2]
    shape = stack.shape
    is_single_slice = node.shape.dimensions == (1, *shape.dimensions[1:]) and shape.minor_to_major[-1] == 0
    if (
        not is_single_slice
        or not 1 < shape.dimensions[0] <= _MAX_SLICES
        or stack.top_level_id is None
        or index.top_level_id is None
    ):
        return None
    return StackedSlice(stack.top_level_id, shape, index.top_level_id, index.shape)
