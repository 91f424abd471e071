"""Normalizer of batch groups as XLA:CPU writes them: an extra spatial dimension in which only equal groups meet.

XLA:CPU computes no batch groups. It moves the G groups of the batch into a spatial dimension of G positions,
dilates that by G and has a window of G weights move over it by G - 1:

    y[n, p, g, o] = sum over k, i of x[n, p + k, g, i] · w[k, g, i, o]

for position k of result g meets place g·(G - 1) + k, a multiple of G only for k = g, and there lies input g. With
the groups in front of the channels that is a convolution in G feature groups.
"""

from __future__ import annotations

import math
from typing import Any

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS, PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import View, merge_dimensions, peeled_views, with_dense_strides
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, first_refusal, fully_peeled, unsupported_types
from hlo_dispatch.match.anchors.convolution import (
    convolution_views,
    unsupported_padding,
    unsupported_window,
    window_attributes,
)
from hlo_dispatch.pattern.table import AnchorKind

_SPACE = 2


def is_group(size: int, result: int, window: Any) -> bool:
    """Whether result g along this dimension depends on input g and window position g alone.

    Args:
        size: of the input.
        result: size of the result.
        window: the dimension of the window.
    """
    return (
        size > 1
        and size == result == window.size == window.base_dilation
        and max(1, window.stride) == size - 1
        and max(1, window.window_dilation) == 1
        and window.padding_low == window.padding_high == 0
        and not window.window_reversal
    )


def group_dimensions(node: Node) -> tuple[int, ...]:
    """The numbers of the dimensions of a convolution's views (N, C, spatial…) that are groups."""
    if all(dimension.base_dilation <= 1 for dimension in node.proto.window.dimensions[:]):
        return ()
    source, _, result = convolution_views(node)
    sizes = zip(source.sizes[_SPACE:], result.sizes[_SPACE:], node.proto.window.dimensions, strict=True)
    return tuple(number for number, entry in enumerate(sizes, _SPACE) if is_group(*entry))


def normalize_batch_groups(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Normalizes `node`, an HLO convolution with one dimension of groups, for the convolution kernel."""
    (group,) = group_dimensions(node)
    window = [d for number, d in enumerate(node.proto.window.dimensions, _SPACE) if number != group]
    refusal = first_refusal(
        unsupported_types(node), unsupported_window(node, window), unsupported_padding(node, window)
    )
    if refusal is not None:
        return refusal
    if node.proto.feature_group_count > 1:
        return Refusal("batch-groups", "the convolution's batch groups are themselves in feature groups", node.name)
    source, weights, result = convolution_views(node)
    destination = _channels_by_group(result, group)
    sources = [merged for view in peeled_views(source, PEEL_CONVERTS) if (merged := _channels_by_group(view, group))]
    if destination is None or not sources:
        sentence = "the groups and the channels of an operand do not lie behind one another"
        return Refusal("layout-unsupported", sentence, node.name)
    weight_views = [_groups_first(view, group) for view in peeled_views(weights, PEEL_CONVERTS_AND_LAYOUTS)]
    source, weights = fully_peeled(sources, weight_views)
    return Anchor(
        node=node,
        entry=entry,
        source=source,
        weights=weights,
        destination=destination.dimensions,
        channel=1,
        multiply_adds=math.prod(destination.sizes) * math.prod(weights.sizes[_SPACE:]),
        attributes=window_attributes(window),
    )


def _channels_by_group(view: View, group: int) -> View | None:
    """The view (N, C, spatial…) with groups and channels merged into one dimension."""
    channels = merge_dimensions([view.dimensions[1], view.dimensions[group]])
    if channels is None:
        return None
    space = [d for number, d in enumerate(view.dimensions) if number >= _SPACE and number != group]
    dimensions = (view.dimensions[0], channels, *space)
    return View(view.node, with_dense_strides(dimensions, dimensions))


def _groups_first(view: View, group: int) -> View:
    """The view (O, I, spatial…) as (G, O, I, spatial…)."""
    rest = [d for number, d in enumerate(view.dimensions) if number != group]
    return View(view.node, (view.dimensions[group], *rest))
