"""Which values of a computation are known before it is called: they depend on frozen parameters and constants alone."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hlo_dispatch.hlo.flat import KEPT_COPY, FlatGraph, Node
from hlo_dispatch.hlo.module import Module
from hlo_dispatch.hlo.opcode import ELEMENTWISE, LOOP_FUSIBLE, PURE_WITH_FIELDS
from hlo_dispatch.hlo.schema import InstructionProto

# The same value every time, and nothing else happens. (A fusion in a flat view is one that was not expanded.)
_PURE = ELEMENTWISE | LOOP_FUSIBLE | PURE_WITH_FIELDS | {
    "bitcast-convert", "cholesky", "complex", "count-leading-zeros", "fft", "imag", KEPT_COPY, "map", "popcnt",
    "real", "remainder", "scatter", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sort", "topk",
    "triangular-solve", "tuple",
}  # fmt: skip
_CALLS = frozenset(("call", "conditional", "fusion", "while"))


def early_values(graph: FlatGraph, frozen: AbstractSet[int]) -> set[Node]:
    """Values that depend on frozen parameters (by number) and constants, and on at least one that is no scalar."""
    known: set[Node] = set()
    early: set[Node] = set()
    for node in graph.nodes:
        if node.opcode == "parameter":
            if node.proto.parameter_number in frozen:
                early.add(node)
        elif node.opcode in ("constant", "iota"):
            known.add(node)
            if node.opcode == "constant" and node.shape.elements > 1:
                early.add(node)
        elif node.operands and all(operand in early or operand in known for operand in node.operands):
            if is_pure(graph.module, node.proto, node.opcode):
                known.add(node)
                if any(operand in early for operand in node.operands):
                    early.add(node)
    return early


def is_pure(module: Module, proto: InstructionProto, opcode: str) -> bool:
    """Whether the instruction computes the same value every time and does nothing besides."""
    if proto.control_predecessor_ids:
        return False
    if opcode == "custom-call":
        return not proto.custom_call_has_side_effect
    if opcode in _CALLS:
        inner = (i for called in proto.called_computation_ids for i in module.computations[called].instructions[:])
        return all(i.opcode in ("parameter", "constant", "iota") or is_pure(module, i, i.opcode) for i in inner)
    return opcode in _PURE


def mark_early(graph: FlatGraph, frozen: AbstractSet[int]) -> None:
    """Note it in the nodes of an entry computation."""
    for node in early_values(graph, frozen):
        node.is_early = True
