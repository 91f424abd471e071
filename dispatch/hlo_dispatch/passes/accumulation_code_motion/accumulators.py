"""Loop accumulators: elements of a loop's tuple to which each iteration adds products and sums of its values.

The backward pass of a scan accumulates the gradients of what all iterations share: dW += x_t^T g_t, db += sum of g_t's
rows. Nothing else reads such an element inside the loop, so that all its summands may be added behind the loop. Several
elements may each add a slice of one product: the gradients of weights that the forward pass joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hlo_dispatch.analysis.binding_time import is_parameter_element
from hlo_dispatch.analysis.counted_loop import CountedLoop
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, PEEL_REARRANGEMENTS, is_widening, peel_node
from hlo_dispatch.ir.shape import FLOAT_TYPES, Shape
from hlo_dispatch.match.reduction import reduces

_ELEMENT_TYPES = FLOAT_TYPES | {"f64"}
_MAX_EXPRESSION = 64
"""Instructions of one iteration's expression."""


@dataclass(frozen=True)
class StackedOperand:
    """An operand of a summand: a value of each iteration, whose stack has one dimension more."""

    value: Node
    """Without bitcasts and converts that change no value."""
    shape: Shape
    """The operand's shape in the summand, of the value's element type."""
    dimension: int | None
    """The dimension that is summed over, outermost in memory: the iterations' number joins it. None: in front of all
    dimensions."""
    widened_to: str = ""
    """The element type in which the summand reads it, where that is another one."""

    def stacked_shape(self, trips: int) -> Shape:
        """The operand's shape in the summand behind the loop."""
        dimensions = list(self.shape.dimensions)
        if self.dimension is not None:
            dimensions[self.dimension] *= trips
            return replace(self.shape, dimensions=tuple(dimensions))
        return with_leading_dimension(self.shape, trips)


@dataclass(frozen=True)
class Summand:
    """What one iteration adds: a product of two operands, or a sum of one."""

    node: Node
    operands: tuple[StackedOperand, ...]

    @property
    def is_product(self) -> bool:
        return len(self.operands) > 1


@dataclass(frozen=True)
class Accumulator:
    """An element of a loop's tuple that is only added to."""

    element: Node
    """Its value at the beginning of an iteration."""
    result: Node
    """Its value at the end."""
    expression: tuple[Node, ...]
    """The instructions between summands and result, operands first; the result is the last one."""
    summands: tuple[Summand, ...]

    @property
    def index(self) -> int:
        """Index in the loop's tuple."""
        return self.element.proto.tuple_index

    @cached_property
    def covered(self) -> frozenset[Node]:
        """Every instruction that is of no use in the loop without the element."""
        return frozenset((*self.expression, *(summand.node for summand in self.summands)))

    def is_alone_in(self, covered: frozenset[Node]) -> bool:
        """Whether nothing outside of these instructions reads a value of the expression."""
        return all(node is self.result or covered.issuperset(node.users) for node in self.covered)


def with_leading_dimension(shape: Shape, size: int) -> Shape:
    """The shape with one more dimension in front of all others, outermost in memory."""
    order = (*(number + 1 for number in shape.minor_to_major), 0)
    return replace(shape, dimensions=(size, *shape.dimensions), minor_to_major=order)


def find_accumulators(loop: CountedLoop, read_outside: set[int]) -> list[list[Accumulator]]:
    """The accumulators of a loop; those of one list share a summand, and move together.

    Args:
        read_outside: indexes of the elements that the loop's condition reads.
    """
    root = loop.body.root
    elements = {node.proto.tuple_index: node for node in loop.body.nodes if is_parameter_element(node)}
    found: list[Accumulator] = []
    for index, result in enumerate(root.operands):
        element = elements.get(index)
        if element is None or index in read_outside or result.users != [root] or root.operands.count(result) > 1:
            continue
        if len(element.users) != 1 or element.shape.element_type not in _ELEMENT_TYPES or result is element:
            continue
        accumulator = _Expression(loop.body, element, result).accumulator()
        if accumulator is not None:
            found.append(accumulator)
    return _sharing(_not_read_elsewhere(found))


def _not_read_elsewhere(accumulators: list[Accumulator]) -> list[Accumulator]:
    """Those whose values nothing but these accumulators reads."""
    while True:
        covered = frozenset(node for one in accumulators for node in one.covered)
        remaining = [one for one in accumulators if one.is_alone_in(covered)]
        if len(remaining) == len(accumulators):
            return remaining
        accumulators = remaining


def _sharing(accumulators: Sequence[Accumulator]) -> list[list[Accumulator]]:
    """Lists of accumulators that share instructions with one another."""
    list_of: dict[Node, list[Accumulator]] = {}
    for one in accumulators:
        shared = {id(found): found for node in one.covered if (found := list_of.get(node)) is not None}
        joined = [*(other for found in shared.values() for other in found), one]
        list_of.update((node, joined) for other in joined for node in other.covered)
    return list({id(found): found for found in list_of.values()}.values())


class _Expression:
    """One iteration's expression of an element: the element plus summands."""

    def __init__(self, graph: FlatGraph, element: Node, result: Node) -> None:
        self._graph, self._element, self._result = graph, element, result
        self._inside: set[Node] = set()
        self._summands: list[Summand] = []

    def accumulator(self) -> Accumulator | None:
        """The element as an accumulator; None where it is none."""
        if not self._follow_element() or not self._summands:
            return None
        expression = tuple(sorted(self._inside, key=lambda node: node.index))
        found = Accumulator(self._element, self._result, expression, tuple(self._summands))
        return None if any(node.has_control_predecessors for node in found.covered) else found

    def _follow_element(self) -> bool:
        """Follow the element's only use to the result; whether it is added to there, once and with factor 1."""
        node = self._element
        while node is not self._result:
            if len(node.users) != 1 or len(self._inside) > _MAX_EXPRESSION:
                return False
            before, node = node, node.users[0]
            self._inside.add(node)
            if node.opcode == "add" and node.operands.count(before) == 1:
                if any(operand.shape != node.shape for operand in node.operands):
                    return False
                other = node.operands[node.operands[0] is before]
                if not self._add_summands(other):
                    return False
            elif not _is_linear(node) or node.opcode in ("negate", "slice"):
                return False
        return True

    def _add_summands(self, value: Node) -> bool:
        """Find the summands of a value; whether all are known."""
        pending = [value]
        while pending:
            node = pending.pop()
            if len(self._inside) > _MAX_EXPRESSION:
                return False
            summand = _product(node) or _outer_product(node) or _sum(node, self._graph)
            if summand is not None:
                self._summands.append(summand)
            elif node.opcode in ("add", "subtract") or _is_linear(node):
                self._inside.add(node)
                pending += node.operands
            else:
                return False
        return True


def _is_linear(node: Node) -> bool:
    """Whether it rearranges, selects, negates or converts elements of a floating-point value."""
    if node.opcode == "convert":
        return {node.shape.element_type, node.operands[0].shape.element_type} <= _ELEMENT_TYPES
    return node.opcode in PEEL_REARRANGEMENTS or node.opcode == "negate"


def _operand(node: Node, dimension: int | None) -> StackedOperand | None:
    """An operand that is summed over this dimension; None where that is not outermost in memory."""
    shape = node.shape
    if not shape.is_array or shape.is_dynamic or not shape.dimensions:
        return None
    if dimension is not None and shape.minor_to_major[-1] != dimension:
        return None
    value, widened_to = peel_node(node, PEEL_BITCASTS), ""
    if is_widening(value):
        value, widened_to = peel_node(value.operands[0], PEEL_BITCASTS), shape.element_type
    return StackedOperand(value, replace(shape, element_type=value.shape.element_type), dimension, widened_to)


def _product(node: Node) -> Summand | None:
    """A dot over one dimension of each side."""
    numbers = node.proto.dot_dimension_numbers
    if node.opcode != "dot" or numbers.lhs_batch_dimensions or node.shape.element_type not in _ELEMENT_TYPES:
        return None
    contracted = numbers.lhs_contracting_dimensions[:], numbers.rhs_contracting_dimensions[:]
    if len(contracted[0]) != 1:
        return None
    left, right = (_operand(operand, side[0]) for operand, side in zip(node.operands, contracted, strict=True))
    return Summand(node, (left, right)) if left is not None and right is not None else None


def _outer_product(node: Node) -> Summand | None:
    """A product over a dimension of size 1, which XLA spells as two broadcasts."""
    if node.opcode != "multiply" or any(operand.opcode != "broadcast" for operand in node.operands):
        return None
    if len(node.shape.dimensions) != 2 or node.shape.element_type not in _ELEMENT_TYPES:
        return None
    if [operand.proto.dimensions[:] for operand in node.operands] not in ([[0], [1]], [[1], [0]]):
        return None
    rows, columns = sorted(node.operands, key=lambda operand: operand.proto.dimensions[0])
    left, right = _operand(rows.operands[0], None), _operand(columns.operands[0], None)
    return Summand(node, (left, right)) if left is not None and right is not None else None


def _sum(node: Node, graph: FlatGraph) -> Summand | None:
    """A sum over the outermost dimension in memory."""
    if node.opcode != "reduce" or node.shape.element_type not in _ELEMENT_TYPES or not reduces(node, graph, "add"):
        return None
    operand = _operand(node.operands[0], node.proto.dimensions[0]) if len(node.proto.dimensions) == 1 else None
    return Summand(node, (operand,)) if operand is not None else None
