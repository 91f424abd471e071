"""Normalizer of global sum pooling: a reduction over space as one window of the pooling kernel.

    y[n, c] = sum over x of src[n, c, x]

XLA writes a mean over space as such a reduction, with a scaling behind it that becomes a post-op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    full_view,
    merge_dimensions,
    peeled_views,
    with_dense_strides,
)
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings, unsupported_space, unsupported_types
from hlo_dispatch.match.epilogue.operand import as_stored_by_call
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.match.reduction import applied_by
from hlo_dispatch.pattern.table import AnchorKind


def is_global_pooling(node: Node) -> bool:
    """Whether an instruction reduces a value over dimensions other than the fastest, its channels."""
    if node.opcode != "reduce" or len(node.operands) != 2 or not node.shape.is_array:
        return False
    source = node.operands[0].shape
    return len(source.dimensions) > 1 and source.minor_to_major[0] not in node.proto.dimensions[:]


def normalize_global_pooling(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, a reduction over space, for the pooling kernel."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    if applied_by(node, around.graph) != "add" or scalar_constant(node.operands[1]) != 0.0:
        return Refusal("reducer-unsupported", "what is reduced is not summed up from 0", node.name)
    source, space = node.operands[0], sorted(node.proto.dimensions[:])
    refusal = unsupported_space(node, len(space))
    if refusal is not None:
        return refusal
    kept = [number for number in source.shape.minor_to_major if number not in space]
    # The result has the kept dimensions in their order.
    place = {number: position for position, number in enumerate(sorted(kept))}
    read = _by_channels(full_view(source), kept, space)
    written = _by_channels(full_view(node), [place[number] for number in kept], ())
    if read is None or written is None:
        return Refusal("layout-unsupported", "what is no space does not lie behind one another", node.name)
    destination = _dense((*written.dimensions, *((1, 1) for _ in space)))
    sizes = [source.shape.dimensions[number] for number in space]
    count = math.prod(sizes)
    return Anchor(
        node=node,
        entry=entry,
        source=as_stored_by_call(peeled_views(read, PEEL_CONVERTS, around.results)[-1], around.results),
        weights=None,
        destination=destination,
        channel=1,
        multiply_adds=source.shape.elements,
        attributes={
            "algorithm": "average",
            "window": sizes,
            "strides": [1] * len(space),
            "dilations": [0] * len(space),
            "padding_low": [0] * len(space),
            "padding_high": [0] * len(space),
        },
        roles=("src", "", "dst"),
        leading_post_op=PostOp("eltwise", "linear", "{}", float(count)),
        formula="sum_pool(x)",
    )


def _by_channels(view: View, kept: Sequence[int], space: Sequence[int]) -> View | None:
    """The view as (N, C, spatial…); channels come first in `kept`."""
    batch = merge_dimensions(view.dimensions[number] for number in kept[1:])
    if batch is None:
        return None
    dimensions = (batch, view.dimensions[kept[0]], *(view.dimensions[number] for number in space))
    return View(view.node, _dense(dimensions))


def _dense(dimensions: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """The same dimensions; those of size 1 get strides as if channels were innermost and the batch outermost."""
    (batch, _), (channels, _), *space = dimensions
    largest = max(size * stride for size, stride in dimensions)
    return with_dense_strides(dimensions, ((batch, largest), (channels, 0), *space))
