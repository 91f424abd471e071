"""Partition of a computation into static and dynamic values, and the frontier between them.

The binding-time analysis (analysis/binding_time.py) classifies the values; the frontier consists of the static values
that dynamic ones read, which the prologue preprocesses. Cheap static values that are larger than their sources (a bias
that is broadcast, weights that are widened) are rematerialized in each call instead.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.binding_time import PURE, StaticRule, static_values
from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.ir.opcode import ELEMENTWISE, FORWARDS, LOOP_FUSIBLE
from hlo_dispatch.pattern.op_kinds import QUANTIZED_WEIGHT_TYPES

# Cheap enough to be rematerialized in every call where the result takes more memory than the operands.
_REMATERIALIZABLE = ELEMENTWISE | LOOP_FUSIBLE | {INSERTED_COPY}


@dataclass(frozen=True)
class Partition:
    """The frontier of one computation and the static values behind it."""

    frontier: tuple[Node, ...]
    """Static values that the steady-state program reads; no parameters, no constants."""
    removed: AbstractSet[Node]
    """Static values that the steady-state program no longer computes, the frontier included."""


def find_partition(graph: FlatGraph, static_inputs: AbstractSet[int], rule: StaticRule = PURE) -> Partition:
    """Find the frontier; arguments as of `static_values`."""
    static = static_values(graph, static_inputs, rule)
    dynamic = [node for node in graph.nodes if node not in static]
    frontier = {operand for node in dynamic for operand in node.operands if operand in static}
    if graph.root in static:
        frontier.add(graph.root)
    rematerialized: set[Node] = set()
    # Users come before their operands: a rematerialized value moves the frontier to its operands.
    for node in sorted(frontier, key=lambda node: -node.index):
        _rematerialize(node, static, frontier, rematerialized)
    frontier -= rematerialized
    removed = static - rematerialized - {node for node in static if not node.operands}
    return Partition(tuple(sorted(frontier, key=lambda node: node.index)), removed)


def _rematerialize(node: Node, static: AbstractSet[Node], frontier: set[Node], rematerialized: set[Node]) -> None:
    """Rematerialize the node, and its sources, where preprocessing it is not worth the memory."""
    pending = [node]
    while pending:
        node = pending.pop()
        if node in rematerialized or not _is_worth_rematerializing(node, static):
            continue
        rematerialized.add(node)
        operands = [operand for operand in node.operands if operand in static]
        frontier.update(operands)
        pending += operands


def _is_worth_rematerializing(node: Node, static: AbstractSet[Node]) -> bool:
    if not node.operands or _is_alias(node) or not node.shape.is_array:
        return True
    return node.opcode in _REMATERIALIZABLE and node.shape.bytes > _source_bytes(node, static)


def _is_alias(node: Node) -> bool:
    """Whether its buffer is its operand's: preprocessing it would store the same bytes twice."""
    if node.opcode == "get-tuple-element":
        return node.operands[0].opcode in ("parameter", "tuple")
    return node.opcode in FORWARDS


def _source_bytes(node: Node, static: AbstractSet[Node]) -> int:
    """Bytes of the value's sources in memory: frozen parameters, constants, expensive static values.

    Reductions (sums, maxima) are sources and never rematerialized, and so are narrow integers, which quantization made
    on purpose.
    """
    sources: set[Node] = set()
    seen = {node}
    pending = [node]
    while pending:
        user = pending.pop()
        for operand in user.operands:
            if operand in static and operand not in seen:
                seen.add(operand)
                is_computed = not static.isdisjoint(operand.operands)
                is_always_preprocessed = (
                    operand.opcode == "reduce" or operand.shape.element_type in QUANTIZED_WEIGHT_TYPES
                )
                if (
                    is_computed
                    and not is_always_preprocessed
                    and (operand.opcode in _REMATERIALIZABLE or _is_alias(operand))
                ):
                    pending.append(operand)
                else:
                    sources.add(operand)
    return sum(source.shape.bytes for source in sources)
