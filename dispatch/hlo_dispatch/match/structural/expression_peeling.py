"""Peeling policy of structural expressions: converts between float types, and changes of shape that move no element.

A purely elementwise expression relates elements by their memory order, which every bitcast keeps. An expression with a
product, a reduction or a broadcast relates them by their indices: only dimensions of one element may be added or
removed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING, PEEL_ROUNDING_AND_SHAPES, PEEL_SHAPES, is_widening
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.shape import FLOAT_TYPES, Shape
from hlo_dispatch.match.elementwise_region import REGION_TYPES, ElementwiseRegion
from hlo_dispatch.pattern.constraints import is_row_major

_MAX_REGION = 256  # XLA spells one erfc in 110 instructions
_MAX_ENTRIES = 16


@dataclass(frozen=True)
class ExpressionPeeling:
    """The peeling policy of one expression."""

    is_elementwise: bool
    """Whether the expression is purely elementwise, so that memory order relates the elements."""

    def can_peel(self, node: Node) -> bool:
        """Whether `node` is its operand under another float type or shape."""
        if node.opcode not in PEEL_ROUNDING_AND_SHAPES or node.has_control_predecessors:
            return False
        source = node.operands[0].shape
        if node.opcode in PEEL_ROUNDING:
            return source.element_type in FLOAT_TYPES and node.shape.element_type in FLOAT_TYPES
        if source.element_type != node.shape.element_type:
            return False
        if not self.is_elementwise:
            return _long_dimensions(source) == _long_dimensions(node.shape)
        if node.opcode == "bitcast":
            return True
        if node.opcode == "copy":
            return source.strides == node.shape.strides
        return is_row_major(source) and is_row_major(node.shape)

    def is_same_value(self, first: Node, second: Node) -> bool:
        """Whether both nodes are one value, by memory order (or by index)."""
        if first is second:
            return True
        if self._peel(first) is not self._peel(second):
            return False
        return self.is_elementwise or _long_sizes(first.shape) == _long_sizes(second.shape)

    def _peel(self, node: Node) -> Node:
        """The value before changes of shape and widening; a rounding makes a different value."""
        while self.can_peel(node) and (node.opcode in PEEL_SHAPES or is_widening(node)):
            node = node.operands[0]
        return node

    def regions(self, result: Node) -> Iterator[ElementwiseRegion]:
        """Every closed elementwise region that ends in `result` and reads one tensor, smallest first."""
        inside: list[Node] = []
        known: set[Node] = set()
        constants: list[float] = []
        frontier = {result}
        entries = 0
        for _ in range(_MAX_REGION):
            # The last node in program order has all its users inside already, if it ever will.
            node = max(frontier, key=lambda node: node.index)
            frontier.discard(node)
            if not self._extend_region(node, result, known, constants, frontier):
                return
            known.add(node)
            inside.append(node)
            if len(frontier) == 1:
                (entry,) = frontier
                entries += 1
                if entry.shape.element_type in FLOAT_TYPES:
                    nodes = tuple(sorted(inside, key=lambda node: node.index))
                    yield ElementwiseRegion(entry, nodes, (len(nodes) - 1,), tuple(dict.fromkeys(constants)))
            if not frontier or entries == _MAX_ENTRIES:
                return

    def _extend_region(
        self, node: Node, result: Node, known: set[Node], constants: list[float], frontier: set[Node]
    ) -> bool:
        """Whether `node` belongs to the region; records its constants and tensor operands then."""
        elementwise = node.opcode in ELEMENTWISE or self.can_peel(node)
        if not elementwise or node.shape.element_type not in REGION_TYPES or node.has_control_predecessors:
            return False
        if node.shape.elements != result.shape.elements:
            return False
        if node is not result and (node.is_live_out or not known.issuperset(node.users)):
            return False
        for operand in node.operands:
            value = scalar_constant(operand)
            if value is not None:
                constants.append(value)
                continue
            if node.opcode not in PEEL_SHAPES and operand.shape.strides != node.shape.strides:
                return False
            if operand not in known:
                frontier.add(operand)
        return True


def _long_dimensions(shape: Shape) -> list[tuple[int, int]]:
    """(size, stride) of the dimensions with more than one element."""
    return [item for item in zip(shape.dimensions, shape.strides, strict=True) if item[0] != 1]


def _long_sizes(shape: Shape) -> list[int]:
    return [size for size in shape.dimensions if size != 1]


def is_degenerate_broadcast(node: Node) -> bool:
    """Whether `node` is a bitcast that XLA wrote for a broadcast along dimensions of one element."""
    if node.opcode not in ("bitcast", "reshape"):
        return False
    source, result = node.operands[0].shape, node.shape
    more = len(result.dimensions) > len(source.dimensions)
    return more and source.element_type == result.element_type and _long_dimensions(source) == _long_dimensions(result)


def peeled_converts(node: Node) -> list[Node]:
    """The value and the values from which it was widened, nearest first."""
    found = [node]
    while is_widening(found[-1]):
        found.append(found[-1].operands[0])
    return found
