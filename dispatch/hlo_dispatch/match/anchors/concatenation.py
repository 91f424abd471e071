"""Normalizer of concatenations: source matrices with equal row counts, whose rows the result holds side by side.

    y[r, ...] = src[r, ...], src_1[r, ...], ...

Rows are the dimensions slower than the concatenated one: positions, where that one is the channels.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings, unsupported_types
from hlo_dispatch.match.epilogue.operand import in_memory
from hlo_dispatch.pattern.table import AnchorKind


def is_concatenation(node: Node) -> bool:
    """Whether an instruction is a concatenation of several arrays."""
    return node.opcode == "concatenate" and len(node.operands) > 1


def normalize_concatenation(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, a concatenation, for the kernel."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    if any(operand.shape.minor_to_major != node.shape.minor_to_major for operand in node.operands):
        return Refusal("layout-unsupported", "what is joined lies in another order than the result", node.name)
    (joined,) = node.proto.dimensions[:]
    sources: list[View] = []
    for value in _read_by(node, around.results):
        view = View(value, _as_matrix(value.shape, joined))
        found = view if value in around.results else in_memory(view, lambda _: False)
        if found is None:
            return Refusal("not-in-memory", "a fusion computes what is joined, and never writes it", value.name)
        sources.append(found)
    return Anchor(
        node=node,
        entry=entry,
        source=sources[0],
        weights=None,
        destination=_as_matrix(node.shape, joined),
        channel=1,
        multiply_adds=node.shape.elements,
        attributes={"sources": len(sources)},
        roles=("src", "", "dst"),
        formula="concatenate(x)",
        extra_sources=tuple(sources[1:]),
    )


def _read_by(node: Node, results: AbstractSet[Node]) -> tuple[Node, ...]:
    """The arrays that the kernel concatenates: a prefix that another call has concatenated already counts as one array.

    XLA flattens nested concatenations, so that those of a dense block share a prefix.
    """
    operands = node.operands
    alike = [
        other
        for other in operands[0].users
        if other.opcode == "concatenate" and other in results and other is not node
        if len(other.operands) < len(operands) and operands[: len(other.operands)] == other.operands
        if other.proto.dimensions[:] == node.proto.dimensions[:]
        if other.shape.minor_to_major == node.shape.minor_to_major
    ]
    if not alike:
        return operands
    longest = max(alike, key=lambda other: len(other.operands))
    return (longest, *operands[len(longest.operands) :])


def _as_matrix(shape: Shape, joined: int) -> tuple[Dimension, ...]:
    """(rows, columns): all dimensions that vary slower than the one along which arrays are joined, and all others."""
    order = shape.minor_to_major
    inner = order[: order.index(joined) + 1]
    columns = math.prod(shape.dimensions[number] for number in inner)
    return (shape.elements // columns, columns), (columns, 1)
