"""Normalizer of convolutions whose operands XLA has swapped, back to the convolution that the program wrote.

Where the kernel is larger than the image XLA slides the image over the kernel instead. With K positions of
weights w, S of the image x and the sum running over the smaller one,

    y[q] = sum over k of w[K-1-(q + k - low)] * x[S-1-k]     (w reversed by an instruction, x by the window)
         = sum over m of w[m] * x[q + m - low'],              low' = (K - 1) * dilation - (S - 1) + low

which is the convolution of x by w again; the window's base dilation is the kernel's dilation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS, PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import Dimension, View, peeled_views, with_dense_strides
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, fully_peeled, unsupported_types
from hlo_dispatch.match.anchors.convolution import convolution_views
from hlo_dispatch.match.anchors.reversal import peeled_window_views
from hlo_dispatch.pattern.table import AnchorKind


def has_swapped_operands(node: Node) -> bool:
    """Whether the convolution's window is an image that slides over a kernel."""
    window = node.proto.window.dimensions[:]
    if node.proto.feature_group_count > 1 or node.proto.batch_group_count > 1 or not 1 <= len(window) <= 3:
        return False
    if any(dimension.stride > 1 or dimension.window_dilation > 1 for dimension in window):
        return False
    long = [dimension for dimension in window if dimension.size > 1]
    # An image of one position needs no turning, and crops its kernel to the one place that they meet.
    is_cropped = any(dimension.padding_low < 0 or dimension.padding_high < 0 for dimension in window)
    is_turned = all(dimension.window_reversal for dimension in long) if long else is_cropped
    return is_turned and any(backwards for _, backwards in _weights(node))


def normalize_swapped_operands(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Normalizes `node`, an HLO convolution with swapped operands, for the convolution kernel."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    weights, source, (outputs, images, *space) = _roles(node)
    low: list[int] = []
    high: list[int] = []
    dilations: list[int] = []
    for number, dimension in enumerate(node.proto.window.dimensions, 2):
        size, kernel_size = source.sizes[number], weights.sizes[number]
        dilation = max(1, dimension.base_dilation) if kernel_size > 1 else 1
        reach = (kernel_size - 1) * dilation
        low.append(reach - (size - 1) + dimension.padding_low)
        high.append(space[number - 2][0] - 1 + reach - (size - 1) - low[-1])
        dilations.append(dilation - 1)
    if min(*low, *high) < 0:
        return Refusal("negative-padding", f"padding {min(*low, *high)} crops the image", node.name)
    ahead = [view for view, backwards in _weights(node) if backwards]
    source, weights = fully_peeled(peeled_views(source, PEEL_CONVERTS), ahead)
    destination = with_dense_strides((images, outputs, *space), (images, outputs, *space))
    return Anchor(
        node=node,
        entry=entry,
        source=source,
        weights=weights,
        destination=destination,
        channel=1,
        multiply_adds=math.prod(size for size, _ in destination) * math.prod(weights.sizes[1:]),
        attributes={
            "strides": [1] * len(low),
            "dilations": dilations,
            "padding_low": low,
            "padding_high": high,
        },
    )


def _roles(node: Node) -> tuple[View, View, Sequence[Dimension]]:
    """Weights (O, I, spatial…), image (N, I, spatial…) and the result's dimensions (O, N, spatial…)."""
    weights, source, result = convolution_views(node)
    return weights, source, result.dimensions


def _weights(node: Node) -> list[tuple[View, bool]]:
    """The peeled views of the kernel, nearest first, and whether its window is in the order of the program."""
    weights, _, _ = _roles(node)
    return peeled_window_views(weights, len(node.proto.window.dimensions), PEEL_CONVERTS_AND_LAYOUTS)
