"""Loop indices: the integer scalars that a loop body computes from its counters, one value for each iteration.

They are evaluated iteration by iteration. An index that depends on anything but counters that begin with constants is
unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from hlo_dispatch.analysis.binding_time import is_parameter_element
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_SCALARS
from hlo_dispatch.ir.literals import INTEGER_FIELDS
from hlo_dispatch.ir.schema import LiteralProto

_MAX_TRIPS = 4096
"""Trip count above which no index is evaluated: it takes microseconds an iteration."""
_RANGES = {"s32": 1 << 31, "s64": 1 << 63}


def _clamp(low: int, value: int, high: int) -> int:
    return min(max(low, value), high)


def _select(condition: int, yes: int, no: int) -> int:
    return yes if condition else no


_ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "add": operator.add,
    "clamp": _clamp,
    "maximum": max,
    "minimum": min,
    "multiply": operator.mul,
    "negate": int.__neg__,
    "select": _select,
    "subtract": operator.sub,
}
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "EQ": operator.eq,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
    "NE": operator.ne,
}


class _Unknown(Exception):
    """The value depends on more than the counters."""


def loop_indices(
    graph: FlatGraph, trips: int, initial: Callable[[int], int | None], indices: Sequence[Node]
) -> list[list[int]] | None:
    """For each of the indices its value in each iteration; None where one of them is unknown.

    Args:
        graph: of a loop body whose root is a tuple.
        trips: number of iterations.
        initial: the integer with which an element of the loop's state begins; None where that is no constant.
    """
    if trips > _MAX_TRIPS:
        return None
    try:
        counters = {number: _initial(initial, number) for number in _counters(graph, indices)}
        found: list[list[int]] = [[] for _ in indices]
        for _ in range(trips):
            known: dict[Node, int] = {}
            for values, index in zip(found, indices, strict=True):
                values.append(_evaluate(index, counters, known))
            counters = {number: _evaluate(graph.root.operands[number], counters, known) for number in counters}
    except _Unknown:
        return None
    return found


def integer_of(literal: LiteralProto, element_type: str) -> int | None:
    """The value of a literal of one integer; None for other types."""
    field = INTEGER_FIELDS.get(element_type)
    values: Sequence[int] = getattr(literal, field)[:] if field is not None else ()
    return values[0] if len(values) == 1 else None


def _counters(graph: FlatGraph, indices: Sequence[Node]) -> set[int]:
    """Tuple indices of the elements of the state that the indices depend on, over any number of iterations."""
    found: set[int] = set()
    pending, seen = list(indices), set[Node]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_parameter_element(node):
            number = node.proto.tuple_index
            found.add(number)
            pending.append(graph.root.operands[number])
        else:
            pending += node.operands
    return found


def _initial(initial: Callable[[int], int | None], number: int) -> int:
    value = initial(number)
    if value is None:
        raise _Unknown
    return value


def _evaluate(node: Node, counters: Mapping[int, int], known: dict[Node, int]) -> int:
    if node not in known:
        known[node] = _value(node, counters, known)
    return known[node]


def _value(node: Node, counters: Mapping[int, int], known: dict[Node, int]) -> int:
    opcode, element_type = node.opcode, node.shape.element_type
    if node.shape.elements != 1 or element_type not in (*_RANGES, "pred"):
        raise _Unknown
    if is_parameter_element(node):
        return counters[node.proto.tuple_index]
    if opcode == "constant":
        value = integer_of(node.proto.literal, element_type)
        if value is None:
            raise _Unknown
        return value
    operands = [_evaluate(operand, counters, known) for operand in node.operands]
    if opcode == "compare":
        return _COMPARISONS[node.proto.comparison_direction](*operands)
    if opcode in PEEL_SCALARS:
        value = operands[0]
    elif opcode in _ARITHMETIC:
        value = _ARITHMETIC[opcode](*operands)
    else:
        raise _Unknown
    bound = _RANGES.get(element_type)
    if bound is not None and not -bound <= value < bound:
        raise _Unknown
    return value
