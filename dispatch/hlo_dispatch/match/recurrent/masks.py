"""Masks: values that decide what a loop keeps of a step, as padding and lengths of sequences do."""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_LAYOUTS
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.ir.shape import FLOAT_TYPES

_LOGICAL = PEEL_LAYOUTS | {"and", "broadcast", "convert", "not", "or", "slice", "xor"}


def find_mask(body: FlatGraph) -> Node | None:
    """The first value other than a floating-point number that a select of states depends on."""
    for node in body.nodes:
        if node.opcode == "select" and node.shape.element_type in FLOAT_TYPES and node.shape.elements > 1:
            mask = _mask(node.operands[0])
            if mask is not None:
                return mask
    return None


def _mask(predicate: Node) -> Node | None:
    pending = [predicate]
    while pending:
        node = pending.pop()
        if scalar_constant(node) is not None:
            continue
        if node.opcode == "compare" and node.operands[0].shape.element_type in FLOAT_TYPES:
            continue  # as in a relu, or in a sigmoid that does not overflow
        if node.opcode not in _LOGICAL:
            return node
        pending += node.operands
    return None
