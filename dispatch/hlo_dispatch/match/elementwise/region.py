"""Elementwise region with one result: the instructions of one shape that lead to it and that nothing else reads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.ir.shape import FLOAT_TYPES, HALF_TYPES
from hlo_dispatch.match.elementwise.program import FUNCTIONS, OPERATIONS

_FULL_TYPES = frozenset(("f32", "f64"))
_TYPES = FLOAT_TYPES | {"f64", "pred"}
_OF_MASKS = frozenset(("and", "not", "or", "select", "xor"))
MOST_NODES = 256


def is_supported(node: Node) -> bool:
    """Whether the kernel has a step for the instruction."""
    if (node.opcode not in OPERATIONS and node.opcode not in FUNCTIONS) or node.has_control_predecessors:
        return False
    kinds = {operand.shape.element_type for operand in node.operands[node.opcode == "select" :]}
    kind = node.shape.element_type
    if not kinds | {kind} <= _TYPES or len(kinds) > 1 or node.shape.is_dynamic:
        return False
    (operand_kind,) = kinds
    if node.opcode == "convert":
        return kind != "pred" and (kind not in HALF_TYPES or operand_kind == "f32")
    if operand_kind == "pred":
        return node.opcode in _OF_MASKS
    return operand_kind in _FULL_TYPES and (node.opcode == "select" or node.opcode not in _OF_MASKS)


def grow_region(
    function: Node, is_owned: Callable[[Node], bool], is_materialized: Callable[[Node], bool]
) -> tuple[Node, ...]:
    """The longest region that contains the function, in the graph's order; its result comes last.

    Args:
        is_owned: whether another match owns an instruction.
        is_materialized: whether a value must be in memory; a region may end in one but not continue past it.
    """
    following = _following(function, is_owned, is_materialized)
    for result in sorted(following, key=lambda node: -node.index):
        found = _leading_to(result, is_owned, is_materialized)
        if function in found:
            return tuple(sorted(found, key=lambda node: node.index))
    return (function,)


def _following(function: Node, is_owned: Callable[[Node], bool], is_materialized: Callable[[Node], bool]) -> set[Node]:
    """The function and what is computed from it element by element."""
    found, pending = {function}, [function]
    while pending and len(found) < MOST_NODES:
        node = pending.pop()
        if node.is_live_out or is_materialized(node):
            continue
        for user in node.users:
            if user not in found and _is_member(user, function, is_owned):
                found.add(user)
                pending.append(user)
    return found


def _leading_to(result: Node, is_owned: Callable[[Node], bool], is_materialized: Callable[[Node], bool]) -> set[Node]:
    """The region that ends in `result`. Users come before their operands, so that those of each node are known."""
    found = {result}
    pending = list(_by_distance(result))
    heapq.heapify(pending)
    seen = {node.index for node in result.operands}
    while pending and len(found) < MOST_NODES:
        _, _, node = heapq.heappop(pending)
        is_read = node.is_live_out or is_materialized(node) or not found.issuperset(node.users)
        if is_read or not _is_member(node, result, is_owned):
            continue
        found.add(node)
        for entry in _by_distance(node):
            if entry[2].index not in seen:
                seen.add(entry[2].index)
                heapq.heappush(pending, entry)
    return found


def _by_distance(node: Node) -> Iterator[tuple[int, int, Node]]:
    """The operands, the last of the graph first."""
    return ((-operand.index, id(operand), operand) for operand in node.operands)


def _is_member(node: Node, of: Node, is_owned: Callable[[Node], bool]) -> bool:
    """Whether the node may be in a region with `of`, whose elements lie likewise."""
    has_same_elements = node.shape.dimensions == of.shape.dimensions and node.shape.strides == of.shape.strides
    return has_same_elements and is_supported(node) and not is_owned(node)
