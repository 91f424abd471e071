"""Operand ops of a match: cheap instructions between the values that a kernel reads and the covered instructions."""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, Node
from hlo_dispatch.analysis.loop_fusion import is_loop_fusible

_MAX_OPS = 64
# Never operand ops: their results come from outside of the computation, or cost more than an elementwise op.
_ENDS = frozenset(
    "parameter constant get-tuple-element tuple while conditional call custom-call infeed recv rng "
    "rng-bit-generator".split()
)

_CONSTANT = frozenset(("constant", "iota"))


def operand_ops_of(covered: set[Node], reads: set[Node]) -> list[Node]:
    """The operand ops of a match, as nodes of the flat graph.

    The search ends at a value in memory that depends on more than the values read: a residual that XLA recomputes from
    a mean and a variance is recomputed from these here, too, and not from the whole program before them.
    """
    found: dict[Node, None] = {}
    pending = [operand for node in covered for operand in node.operands]
    while pending and len(found) < _MAX_OPS:
        node = pending.pop()
        if node in covered or node in reads or node in found or not _may_be_operand_op(node):
            continue
        if node.top_level_id is None or is_constant_expression(node) or _is_derived_from_reads(node, covered, reads):
            found[node] = None
            pending += node.operands
    return list(found)


def _is_derived_from_reads(node: Node, covered: set[Node], reads: set[Node]) -> bool:
    """Whether operand ops compute the node from a value read, as far as a bounded search shows."""
    seen, pending = {node}, [node]
    while pending and len(seen) <= _MAX_OPS:
        for operand in pending.pop().operands:
            if operand in reads:
                return True
            if operand not in seen and operand not in covered and _may_be_operand_op(operand):
                seen.add(operand)
                pending.append(operand)
    return False


def is_constant_expression(node: Node) -> bool:
    """Whether the node depends on constants alone, as far as a bounded search shows."""
    pending, left = [node], _MAX_OPS
    while pending and left:
        value, left = pending.pop(), left - 1
        if value.opcode not in _CONSTANT and not _may_be_operand_op(value):
            return False
        pending += value.operands
    return not pending


def _may_be_operand_op(node: Node) -> bool:
    return (
        bool(node.operands)
        and node.opcode not in _ENDS
        and (node.opcode == INSERTED_COPY or is_loop_fusible(node.opcode))
    )
