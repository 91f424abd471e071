"""Normalizer of int8 convolutions whose sums are converted to f32."""

from __future__ import annotations

import math

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS, PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, first_refusal
from hlo_dispatch.match.anchors.convolution import (
    by_group,
    convolution_views,
    unsupported_padding,
    unsupported_window,
    window_attributes,
)
from hlo_dispatch.match.anchors.integer_sums import as_numbers, narrow
from hlo_dispatch.pattern.op_kinds import INTEGER_WEIGHTS
from hlo_dispatch.pattern.table import AnchorKind


def normalize_integer_convolution(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Normalizes `node`, and the convert behind it, for the convolution kernel."""
    numbers = as_numbers(node)
    if isinstance(numbers, Refusal):
        return numbers
    window = node.proto.window.dimensions[:]
    refusal = first_refusal(unsupported_window(node), unsupported_padding(node, window))
    if refusal is not None:
        return refusal
    source, weights, destination = convolution_views(node)
    arithmetic = math.prod(destination.sizes) * math.prod(weights.sizes[1:])
    image, integers = (narrow(source, PEEL_CONVERTS), narrow(weights, PEEL_CONVERTS_AND_LAYOUTS))
    if image is None or integers is None:
        return Refusal(
            "layout-unsupported", "an operand's integers do not lie as the convolution reads them", node.name
        )
    if integers.element_type != INTEGER_WEIGHTS:
        return Refusal("dtype-unsupported", f"weights of {integers.element_type} no kernel takes", node.name)
    return Anchor(
        node=node,
        entry=entry,
        source=image,
        weights=by_group(integers, node.proto.feature_group_count),
        destination=destination.dimensions,
        channel=1,
        multiply_adds=arithmetic,
        attributes=dict(window_attributes(window)),
        covers=numbers,
        value=numbers[-1],
    )
