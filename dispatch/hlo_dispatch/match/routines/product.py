"""Matrix products of linear algebra: of types that oneDNN lacks, and of triangular factors.

Half of a Cholesky factor is zeros, which XLA's product multiplies as well. The match only has to establish that an
operand is such a factor: the kernel finds the half, and zeros of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_dispatch.analysis.dot_dimensions import dot_dimensions
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import Dimension, View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.dot import matrix_views, merge_row_major

Dimensions = tuple[Dimension, ...]
_MAX_SOURCES = 64


def normalize_product(
    node: Node, fits: Callable[[Dimensions], bool], is_unmaterialized: Callable[[Node], bool]
) -> tuple[list[list[View]], Dimensions] | Refusal:
    """Normalizes a dot as (batch…, M, K) · (batch…, K, N) → (batch…, M, N).

    Returns:
        every view of each operand that a kernel may read, nearest first, and the result's dimensions.
    """
    left, right = dot_dimensions(node)
    result, batches = node.shape.strided_dimensions, left.first_free
    rows, columns = merge_row_major(result[batches : right.first_free]), merge_row_major(result[right.first_free :])
    if rows is None or columns is None:
        return Refusal("dot-dimensions", "the result's free dimensions do not lie behind one another", node.name)
    destination = (*result[:batches], rows, columns)
    if not fits(destination):
        return Refusal("dot-dimensions", "neither rows nor columns of the result are contiguous", node.name)
    found: list[list[View]] = []
    sides = ((left, (left.free, left.contracting)), (right, (right.contracting, right.free)))
    for operand, (side, groups) in zip(node.operands, sides, strict=True):
        views = [
            view
            for view in matrix_views(operand, side.batch, groups)
            if fits(view.dimensions)
            and view.element_type == node.shape.element_type
            and not is_unmaterialized(view.node)
        ]
        if not views:
            return Refusal("dot-dimensions", "neither rows nor columns of an operand are contiguous", operand.name)
        found.append(views)
    return found, destination


def reads_factor(node: Node, factors: frozenset[Node] | set[Node]) -> bool:
    """Whether an operand of the dot is a triangular factor of one of `factors` (library calls)."""
    return any(_is_half_of(operand, factors) for operand in node.operands)


def stands_alone(node: Node, graph: FlatGraph) -> bool:
    """Whether XLA computes the dot by a routine (its own or YNNPACK's), not as a loop inside a fusion."""
    if node.top_level_id is None:
        return False
    instruction = graph.instruction_of[node.top_level_id]
    return instruction.opcode == "dot" or (
        instruction.fusion_kind == "kCustom" and graph.computed_by(node.top_level_id) == [node]
    )


def is_half_zeros(node: Node) -> bool:
    """Whether a select masks a part of a matrix with zeros."""
    return node.opcode == "select" and any(scalar_constant(branch) == 0 for branch in node.operands[1:])


def _is_half_of(operand: Node, factors: frozenset[Node] | set[Node]) -> bool:
    seen, pending, masked = {operand}, [operand], False
    while pending and len(seen) < _MAX_SOURCES:
        node = pending.pop()
        if node in factors:
            return masked
        masked = masked or is_half_zeros(node)
        for value in node.operands:
            if value not in seen and (value in factors or value.shape.elements == operand.shape.elements):
                seen.add(value)
                pending.append(value)
    return False
