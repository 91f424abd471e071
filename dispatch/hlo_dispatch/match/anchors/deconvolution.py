"""Normalizer of transposed convolutions: a convolution of a dilated input for the deconvolution kernel.

HLO: y[n, o, q] = sum over i, k of xd[n, i, q + k·dilation - low] · w[o, i, k], where xd holds x at multiples of
the base dilation s and zeros between. With k' = K - 1 - k that is the transposed convolution

    y[n, o, p·s + k'·dilation - low'] += x[n, i, p] · w'[o, i, k'],   low' = (K - 1)·dilation - low,   w'[k'] = w[k]

and likewise high'. So the kernel reads the window back to front. Where the program itself has reversed the
weights (JAX's input gradients do), the kernel reads those ahead of the reversal as they lie.
"""

from __future__ import annotations

import math

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS, PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import peeled_views
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, first_refusal, fully_peeled, unsupported_types
from hlo_dispatch.match.anchors.convolution import by_group, convolution_views, unsupported_window
from hlo_dispatch.match.anchors.reversal import peeled_window_views
from hlo_dispatch.pattern.table import AnchorKind


def normalize_deconvolution(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Normalizes `node`, an HLO convolution with a base dilation, for the deconvolution kernel."""
    window = node.proto.window.dimensions
    refusal = first_refusal(unsupported_types(node), unsupported_window(node))
    if refusal is not None:
        return refusal
    source, weights, destination = convolution_views(node)
    arithmetic = math.prod(source.sizes) * math.prod(weights.sizes[2:]) * (weights.sizes[0] // _groups(node))
    attributes: dict[str, list[int]] = {"strides": [], "dilations": [], "padding_low": [], "padding_high": []}
    for dimension in window:
        stride, dilation = max(1, dimension.base_dilation), max(1, dimension.window_dilation)
        if dimension.stride > 1:
            sentence = f"the window moves by {dimension.stride} over a dilated input"
            return Refusal("base-dilation", sentence, node.name)
        reach = (dimension.size - 1) * dilation
        low, high = reach - dimension.padding_low, reach - dimension.padding_high
        # A strided convolution leaves out up to one stride of results behind the last position.
        if low < 0 or high <= -stride:
            padding = f"{dimension.padding_low}_{dimension.padding_high}"
            sentence = f"padding {padding} reaches beyond what a window of {reach + 1} turns into results"
            return Refusal("negative-padding", sentence, node.name)
        attributes["strides"].append(stride)
        attributes["dilations"].append(dilation - 1 if dimension.size > 1 else 0)
        attributes["padding_low"].append(low)
        attributes["padding_high"].append(high)
    views = dict(peeled_window_views(by_group(weights, _groups(node)), len(window), PEEL_CONVERTS_AND_LAYOUTS))
    source, weights = fully_peeled(peeled_views(source, PEEL_CONVERTS), list(views))
    has_order = any(dimension.size > 1 for dimension in window)
    return Anchor(
        node=node,
        entry=entry,
        source=source,
        weights=weights,
        destination=destination.dimensions,
        channel=1,
        multiply_adds=arithmetic,
        attributes=attributes | {"weights_reversed": int(has_order and not views[weights])},
        formula="conv_transpose(x, w)",
    )


def _groups(node: Node) -> int:
    return max(1, node.proto.feature_group_count)
