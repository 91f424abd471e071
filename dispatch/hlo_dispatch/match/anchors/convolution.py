"""Normalizer of forward convolutions: (N, C, spatial…) with strides for any dimension order.

Formula: y[n, o, p] = sum over c, k of x[n, c, p·stride + k·dilation - padding] · w[o, c, k], per feature group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS, PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import View, full_view, peeled_views
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import (
    Anchor,
    first_refusal,
    fully_peeled,
    peeled_to_half_precision,
    unsupported_types,
)
from hlo_dispatch.match.anchors.padding import peel_pad
from hlo_dispatch.match.anchors.reversal import peeled_window_views
from hlo_dispatch.pattern.table import AnchorKind


def normalize_convolution(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Normalizes `node`, an HLO convolution, for the convolution kernel."""
    window = node.proto.window.dimensions[:]
    refusal = first_refusal(unsupported_types(node), unsupported_window(node), unsupported_padding(node, window))
    if refusal is not None:
        return refusal
    source, weights, destination = convolution_views(node)
    arithmetic = math.prod(destination.sizes) * math.prod(weights.sizes[1:])
    source, weights, attributes = _operands(source, by_group(weights, node.proto.feature_group_count), len(window))
    unpadded = peel_pad(source, window_attributes(window), node)
    return Anchor(
        node=node,
        entry=entry,
        source=unpadded.source,
        weights=weights,
        destination=destination.dimensions,
        channel=1,
        multiply_adds=arithmetic,
        attributes=unpadded.attributes | attributes,
        covers=unpadded.covers,
    )


def _operands(source: View, weights: View, window: int) -> tuple[View, View, dict[str, int]]:
    """The kernel's operands, and the attributes that they need.

    Weights that the program reverses, as it does for an input gradient, are read ahead of the reversal: XLA
    computes it, with the transpose that goes with it, in a pass of its own on one thread.
    """
    views = peeled_window_views(weights, window, PEEL_CONVERTS_AND_LAYOUTS)
    backwards = [view for view, is_backwards in views if is_backwards]
    if not backwards:
        return *peeled_to_half_precision(source, weights), {}
    source, weights = fully_peeled(peeled_views(source, PEEL_CONVERTS), backwards)
    return source, weights, {"weights_reversed": 1}


def window_attributes(window: Sequence[Any]) -> dict[str, list[int]]:
    """Window attributes of the kernel, from an HLO window's dimensions; a dilation of 0 has no gaps."""
    return {
        "strides": [max(1, d.stride) for d in window],
        "dilations": [max(1, d.window_dilation) - 1 for d in window],
        "padding_low": [d.padding_low for d in window],
        "padding_high": [d.padding_high for d in window],
    }


def convolution_views(node: Node) -> tuple[View, View, View]:
    """Strided views of operands and result as (N, C, spatial…), (O, I, spatial…) and (N, O, spatial…)."""
    numbers = node.proto.convolution_dimension_numbers
    source, weights = (full_view(operand) for operand in node.operands)
    return (
        _pick(source, numbers.input_batch_dimension, numbers.input_feature_dimension, numbers.input_spatial_dimensions),
        _pick(
            weights,
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_spatial_dimensions,
        ),
        _pick(
            full_view(node),
            numbers.output_batch_dimension,
            numbers.output_feature_dimension,
            numbers.output_spatial_dimensions,
        ),
    )


def _pick(view: View, first: int, second: int, spatial: Sequence[int]) -> View:
    return View(view.node, tuple([view.dimensions[number] for number in (first, second, *spatial[:])]))


def by_group(weights: View, groups: int) -> View:
    """The weights (O, I, …) as (G, O/G, I, …)."""
    if groups <= 1:
        return weights
    outputs, stride = weights.dimensions[0]
    per_group = outputs // groups
    return View(weights.node, ((groups, per_group * stride), (per_group, stride), *weights.dimensions[1:]))


def unsupported_window(node: Node, window: Sequence[Any] | None = None) -> Refusal | None:
    """A refusal for windows that no op kind of convolution supports; checks all dimensions, or the given ones."""
    window, name = node.proto.window.dimensions[:] if window is None else window, node.name
    if not 1 <= len(window) <= 3:
        return Refusal("rank-unsupported", f"{len(window)} spatial dimensions; the kernel takes 1 to 3", name)
    if node.proto.batch_group_count > 1:
        return Refusal("batch-groups", f"batch_group_count is {node.proto.batch_group_count}", name)
    for dimension in window:
        if dimension.window_reversal and dimension.size > 1:
            return Refusal("window-reversal", f"a window of {dimension.size} is read backwards", name)
    return None


def unsupported_padding(node: Node, window: Sequence[Any]) -> Refusal | None:
    """A refusal for a dilated or cropped input, which a forward convolution does not have."""
    for dimension in window:
        if dimension.base_dilation > 1:
            return Refusal("base-dilation", f"the input is dilated by {dimension.base_dilation}", node.name)
        if dimension.padding_low < 0 or dimension.padding_high < 0:
            padding = f"{dimension.padding_low}_{dimension.padding_high}"
            return Refusal("negative-padding", f"padding {padding} crops the input", node.name)
    return None
