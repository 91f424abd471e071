"""Which values of a computation depend on nothing but frozen parameters and constants, and which are worth keeping.

Partial evaluation by what is known early: every value is either early or not, and the cut goes where the late part
reads the early one. What would only make memory larger there (a bias that is broadcast, weights that are widened) is
computed late, as before, from what it is made of.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.analysis.binding_time import early_values
from hlo_dispatch.analysis.flat_graph import KEPT_COPY, FlatGraph, Node
from hlo_dispatch.ir.opcode import ELEMENTWISE, LOOP_FUSIBLE
from hlo_dispatch.pattern.op_kinds import NARROW_TYPES

# Cheap enough to be computed again in every call, where keeping its result takes more memory than its operands do.
_CHEAP = ELEMENTWISE | LOOP_FUSIBLE | {KEPT_COPY}


@dataclass(frozen=True)
class Colouring:
    """What becomes of the early values of one computation."""

    border: tuple[Node, ...]
    """Early values that the program reads, none of them a parameter or constant."""
    gone: AbstractSet[Node]
    """Early values that the program does not compute any more, the border included."""


def colour(graph: FlatGraph, given: AbstractSet[int]) -> Colouring:
    """Where to cut the computation; what is given, `early_values` says."""
    early = early_values(graph, given)
    late = [node for node in graph.nodes if node not in early]
    border = {operand for node in late for operand in node.operands if operand in early}
    if graph.root in early:
        border.add(graph.root)
    stays: set[Node] = set()
    # Users come before what they read: what stays behind moves the border to its operands.
    for node in sorted(border, key=lambda node: -node.index):
        _keep_back(node, early, border, stays)
    border -= stays
    gone = early - stays - {node for node in early if not node.operands}
    return Colouring(tuple(sorted(border, key=lambda node: node.index)), gone)


def _keep_back(node: Node, early: AbstractSet[Node], border: set[Node], stays: set[Node]) -> None:
    """Let the node, and what it is made of, be computed late where keeping it is not worth its memory."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node in stays or not _is_kept_back(node, early):
            continue
        stays.add(node)
        operands = [operand for operand in node.operands if operand in early]
        border.update(operands)
        waiting += operands


def _is_kept_back(node: Node, early: AbstractSet[Node]) -> bool:
    if not node.operands or _is_free(node) or not node.shape.is_array:
        return True
    return node.opcode in _CHEAP and node.shape.bytes > _bytes_of_sources(node, early)


def _is_free(node: Node) -> bool:
    """Whether its buffer is its operand's, so that to keep it would keep the same bytes under another name."""
    if node.opcode == "get-tuple-element":
        return node.operands[0].opcode in ("parameter", "tuple")
    return node.opcode in ("bitcast", "tuple")


def _bytes_of_sources(node: Node, early: AbstractSet[Node]) -> int:
    """Bytes of what in memory the value is made of: frozen parameters, constants, what is dear to compute.

    Sums and maxima are kept themselves rather than what is made of them, if that is larger; and narrow integers,
    which weights were made on purpose.
    """
    sources: set[Node] = set()
    seen = {node}
    waiting = [node]
    while waiting:
        user = waiting.pop()
        for operand in user.operands:
            if operand in early and operand not in seen:
                seen.add(operand)
                is_made = not early.isdisjoint(operand.operands)
                is_kept = operand.opcode == "reduce" or operand.shape.element_type in NARROW_TYPES
                if is_made and not is_kept and (operand.opcode in _CHEAP or _is_free(operand)):
                    waiting.append(operand)
                else:
                    sources.add(operand)
    return sum(source.shape.bytes for source in sources)
