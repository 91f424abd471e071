"""A convolution instruction in the kernel's terms: (N, C, spatial…) with strides for any dimension order.

Formula: y[n, o, p] = sum over c, k of x[n, c, p·stride + k·dilation − padding] · w[o, c, k], per feature group.
"""

from __future__ import annotations

import math

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.match.anchor import Anchor, halved, unsupported_types
from hlo_dispatch.match.strided import View, whole


def read_convolution(node: Node, kernel: str) -> Anchor | Refusal:
    """Describe `node`, an HLO convolution, for the convolution kernel."""
    proto = node.proto
    numbers, window = proto.convolution_dimension_numbers, proto.window.dimensions
    groups = max(1, proto.feature_group_count)
    refusal = unsupported_types(node) or _unsupported_window(node, window)
    if refusal is not None:
        return refusal

    def pick(view: View, order: list[int]) -> View:
        return View(view.node, tuple(view.dimensions[number] for number in order))

    source = pick(
        whole(node.operands[0]),
        [numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions],
    )
    weights = pick(
        whole(node.operands[1]),
        [
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ],
    )
    destination = pick(
        whole(node),
        [numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions],
    )
    (outputs, output_stride), (inputs, input_stride) = weights.dimensions[:2]
    # Two views of one tensor: grouped weights walk the output features group by group.
    arithmetic = math.prod(destination.sizes) * inputs * math.prod(weights.sizes[2:])
    if groups > 1:
        per_group = outputs // groups
        grouped = ((groups, per_group * output_stride), (per_group, output_stride), (inputs, input_stride))
        weights = View(weights.node, grouped + weights.dimensions[2:])
    source, weights = halved(source, weights)
    return Anchor(
        node=node,
        kernel=kernel,
        source=source,
        weights=weights,
        destination=destination.dimensions,
        channel=1,
        multiply_adds=arithmetic,
        attributes={
            "strides": [max(1, d.stride) for d in window],
            "dilations": [max(1, d.window_dilation) - 1 for d in window],
            "padding_low": [d.padding_low for d in window],
            "padding_high": [d.padding_high for d in window],
        },
    )


def _unsupported_window(node: Node, window) -> Refusal | None:
    name = node.name
    if not 1 <= len(window) <= 3:
        return Refusal("rank-unsupported", f"{len(window)} spatial dimensions; the kernel takes 1 to 3", name)
    if node.proto.batch_group_count > 1:
        return Refusal("batch-groups", f"batch_group_count is {node.proto.batch_group_count}", name)
    for dimension in window:
        if dimension.base_dilation > 1:
            return Refusal("base-dilation", f"the input is dilated by {dimension.base_dilation}", name)
        if dimension.window_reversal and dimension.size > 1:
            return Refusal("window-reversal", f"a window of {dimension.size} is read backwards", name)
        if dimension.padding_low < 0 or dimension.padding_high < 0:
            padding = f"{dimension.padding_low}_{dimension.padding_high}"
            return Refusal("negative-padding", f"padding {padding} crops the input", name)
    return None
