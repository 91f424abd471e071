"""Operand ops of a match: the cheap instructions between the values that a kernel reads and what the match covers."""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, Node
from hlo_dispatch.analysis.loop_fusion import may_be_in_loop

_FARTHEST = 64
# What is never looked past: their results come from elsewhere.
_ENDS = frozenset(
    "parameter constant get-tuple-element tuple while conditional call custom-call infeed recv rng "
    "rng-bit-generator".split()
)

_CONSTANT = frozenset(("constant", "iota"))


def operand_ops_of(covered: set[Node], reads: set[Node]) -> list[Node]:
    """Operand ops of a match, as nodes of the flat graph.

    A value that has to be computed from something else than what the match reads ends the way where it is in memory:
    so a residual that XLA computes again from a mean and a variance is computed here from these, too, and not from
    the whole program before them.
    """
    found: dict[Node, None] = {}
    pending = [operand for node in covered for operand in node.operands]
    while pending and len(found) < _FARTHEST:
        node = pending.pop()
        if node in covered or node in reads or node in found or not _may_be_operand_op(node):
            continue
        if node.top is None or is_made_of_constants(node) or _is_derived_from_reads(node, covered, reads):
            found[node] = None
            pending += node.operands
    return list(found)


def _is_derived_from_reads(node: Node, covered: set[Node], reads: set[Node]) -> bool:
    """Whether it is made of a value read, by means that may be looked past, as far as a few steps show."""
    seen, pending = {node}, [node]
    while pending and len(seen) <= _FARTHEST:
        for operand in pending.pop().operands:
            if operand in reads:
                return True
            if operand not in seen and operand not in covered and _may_be_operand_op(operand):
                seen.add(operand)
                pending.append(operand)
    return False


def is_made_of_constants(node: Node) -> bool:
    """Whether it depends on nothing else, as far as a few steps show."""
    pending, left = [node], _FARTHEST
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
        and (node.opcode == INSERTED_COPY or may_be_in_loop(node.opcode))
    )
