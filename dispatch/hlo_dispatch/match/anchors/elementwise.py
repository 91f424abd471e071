"""Normalizer of binary elementwise ops: (N, C, spatial…), with channels fastest.

The second value may be a broadcast along any dimensions. It is the operand of the kernel's leading post-op, which
the epilogue's post-ops follow.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    full_view,
    peeled_views,
    project_dimensions,
    with_dense_strides,
)
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, unsupported_types
from hlo_dispatch.match.epilogue.operand import as_stored_by_call, find_operand
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.pattern.table import AnchorKind

_RANKS = range(2, 6)


def has_channels(node: Node) -> bool:
    """Whether a value has a rank that the kernel supports."""
    return len(node.shape.dimensions) in _RANKS


def normalize_elementwise(
    node: Node, value: Node, other: Node, algorithm: str, formula: str, entry: AnchorKind, results: AbstractSet[Node]
) -> Anchor | Refusal:
    """Normalizes `node`, which computes `algorithm` of two operands, for the kernel."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    arrays = [operand for operand in (value, other) if scalar_constant(operand) is None]
    if any(operand.shape.strides != node.shape.strides for operand in arrays):
        return Refusal("layout-unsupported", "the instruction changes the layout", node.name)
    destination = _channels_second(node)
    view = find_operand(node, other, entry.dtypes, lambda _: False, results.__contains__, results)
    source = _peeled_to_stored(value, entry, results)
    if view is None or source is None:
        return Refusal("not-in-memory", "what it is computed of is not in memory", node.name)
    dimensions = project_dimensions(view.dimensions, node.shape, destination)
    source_dimensions = project_dimensions(source.dimensions, node.shape, destination)
    assert dimensions is not None, "the destination has the node's own dimensions"
    assert source_dimensions is not None
    return Anchor(
        node=node,
        entry=entry,
        source=View(source.node, with_dense_strides(source_dimensions, destination)),
        weights=None,
        destination=destination,
        channel=1,
        multiply_adds=node.shape.elements,
        roles=("src", "", "dst"),
        leading_post_op=PostOp(
            "binary", algorithm, formula, operand=View(view.node, with_dense_strides(dimensions, destination))
        ),
        formula="x",
    )


def _channels_second(node: Node) -> tuple[Dimension, ...]:
    """The result's dimensions: the fastest comes second, the others from the slowest on."""
    fastest, *others = node.shape.minor_to_major
    dimension = node.shape.strided_dimensions
    slowest, *space = reversed(others)
    dimensions = (dimension[slowest], dimension[fastest], *(dimension[number] for number in space))
    return with_dense_strides(dimensions, dimensions)


def _peeled_to_stored(value: Node, entry: AnchorKind, results: AbstractSet[Node]) -> View | None:
    """The view that the kernel reads: a call's result, rounded or unrounded, else the furthest peeled view."""
    views = [
        view for view in peeled_views(full_view(value), PEEL_CONVERTS, results) if view.element_type in entry.dtypes
    ]
    if not views:
        return None
    given = as_stored_by_call(views[-1], results)
    if given.node in results:
        return given if given.element_type in entry.dtypes else views[-1]
    last = views[-1].node
    rounded = last.opcode == "convert" and last.operands[0] in results
    same_places = rounded and last.operands[0].shape.strides == last.shape.strides
    if same_places and last.operands[0].shape.element_type in entry.dtypes:
        return View(last.operands[0], views[-1].dimensions)
    return views[-1]
