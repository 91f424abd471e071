"""Values that are one of several early ones, in one array: a scan over layers has its weights so, and a counter."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.shape import Shape

_MOST = 256
"""Packing calls for one array: each is an instruction of the preparation."""


@dataclass(frozen=True)
class Picked:
    """One value out of an early array of several."""

    stack: int
    """Id of the instruction whose value they all are, along its outermost dimension in memory."""
    shape: Shape
    """Of that array."""
    index: int
    """Id of the instruction that says which, a scalar; what is too small or large for it means the first or last."""
    index_shape: Shape

    @property
    def count(self) -> int:
        return self.shape.dimensions[0]


def picked_values(graph: FlatGraph, early: AbstractSet[Node]) -> Mapping[Node, Picked]:
    """The values of a computation that are one of several early ones, as they lie in memory."""
    found: dict[Node, Picked] = {}
    for node in graph.nodes:
        if node.opcode == "dynamic-slice" and node.operands[0] in early:
            if (picked := _picked(node)) is not None:
                found[node] = picked
        elif node.opcode == "bitcast" and node.operands[0] in found:
            found[node] = found[node.operands[0]]
    return found


def _picked(node: Node) -> Picked | None:
    stack, index = node.operands[:2]
    shape = stack.shape
    is_one = node.shape.dimensions == (1, *shape.dimensions[1:]) and shape.minor_to_major[-1] == 0
    if not is_one or not 1 < shape.dimensions[0] <= _MOST or stack.top is None or index.top is None:
        return None
    return Picked(stack.top, shape, index.top, index.shape)
