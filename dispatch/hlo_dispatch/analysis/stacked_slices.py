"""Slices of stacked arrays: values that an index selects from an array, as a scan over layers reads its weights."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, peel_node

MAX_STATIC_SLICES = 256
"""Largest number of slices of static weights: each one needs a prepack call in the prologue."""


@dataclass(frozen=True)
class StackedSlice:
    """A contiguous slice of an array along its outermost dimension in memory."""

    stack: Node
    """The stacked array."""
    index: Node
    """The scalar index; a dynamic-slice clamps it to the first or the last slice."""
    count: int
    """How many slices there are."""
    stride: int
    """Bytes between neighbouring slices."""


def stacked_slice(node: Node) -> StackedSlice | None:
    """The slice whose bytes a value has, of an array in memory with the same element type."""
    source = peel_node(node, PEEL_BITCASTS)
    if source.opcode != "dynamic-slice" or source.shape.element_type != node.shape.element_type:
        return None
    if source.has_control_predecessors:
        return None  # the slice is read at a certain time
    shape, sizes = source.operands[0].shape, source.shape.dimensions
    stack = peel_node(source.operands[0], PEEL_BITCASTS)
    dimensions = [d for d in reversed(shape.minor_to_major) if shape.dimensions[d] > 1]
    if not dimensions or not source.shape.elements or shape.minor_to_major != source.shape.minor_to_major:
        return None
    outermost = dimensions[0]
    is_contiguous = all(size == shape.dimensions[d] for d, size in enumerate(sizes) if d != outermost)
    bits = (shape.packed_bits or shape.bytes * 8 // shape.elements) * shape.strides[outermost]
    if not is_contiguous or bits % 8 or stack.top_level_id is None or stack.shape.element_type != shape.element_type:
        return None
    count = shape.dimensions[outermost] - sizes[outermost] + 1
    return StackedSlice(stack, source.operands[1 + outermost], count, bits // 8)


def slices_of(graph: FlatGraph, static: AbstractSet[Node]) -> list[Node]:
    """The values of a computation that are slices of static arrays."""
    found: list[Node] = []
    for node in graph.nodes:
        if node.opcode in ("dynamic-slice", "bitcast") and (of := stacked_slice(node)) is not None:
            if of.stack in static and 1 < of.count <= MAX_STATIC_SLICES:
                found.append(node)
    return found
