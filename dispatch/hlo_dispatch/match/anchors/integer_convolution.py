"""A convolution of eight-bit integers whose sums become numbers of f32: y = float(conv(x, w)), x and w of s8.

What quantized networks compute: sums are exact in s32, and what follows (scales, a bias, a residual, an activation, and
rounding to eight bits again) is a chain like any other. The kernel sums as exactly, and rounds where the convert does.
"""

from __future__ import annotations

import math

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.match.anchors.anchor import Anchor, first_refusal, unsupported_types
from hlo_dispatch.match.anchors.convolution import (
    by_group,
    convolution_views,
    unsupported_padding,
    unsupported_window,
    window_attributes,
)
from hlo_dispatch.match.strided import View, candidates
from hlo_dispatch.pattern.readings import NARROW_TYPES
from hlo_dispatch.pattern.table import AnchorKind

SUM_TYPE = "s32"
_MOVING = frozenset(("bitcast", "copy", "transpose"))


def is_integer_convolution(node: Node) -> bool:
    """Whether both operands are of eight bits, widened or not, and the result holds their sums."""
    return node.shape.element_type == SUM_TYPE and all(_narrow(operand) is not None for operand in node.operands)


def read_integer_convolution(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Describe `node`, and the convert behind it, for the convolution kernel."""
    window = node.proto.window.dimensions[:]
    refusal = first_refusal(
        unsupported_types(node, NARROW_TYPES | {SUM_TYPE}), unsupported_window(node), unsupported_padding(node, window)
    )
    if refusal is not None:
        return refusal
    converted = _converted(node)
    if converted is None:
        return Refusal("dtype-unsupported", "its sums are used as integers, which the kernel does not give", node.name)
    source, weights, destination = convolution_views(node)
    source, weights = _as_narrow(source), _as_narrow(weights)
    arithmetic = math.prod(destination.sizes) * math.prod(weights.sizes[1:])
    return Anchor(
        node=node,
        entry=entry,
        source=source,
        weights=candidates(by_group(weights, node.proto.feature_group_count), _MOVING)[-1],
        destination=destination.dimensions,
        channel=1,
        multiply_adds=arithmetic,
        attributes=dict(window_attributes(window)),
        covers=(converted,),
        value=converted,
    )


def _narrow(operand: Node) -> Node | None:
    """The operand of eight bits; where XLA multiplies no such integers it widens them first."""
    if operand.shape.element_type in NARROW_TYPES:
        return operand
    if operand.opcode != "convert" or operand.is_result or operand.proto.control_predecessor_ids:
        return None
    (value,) = operand.operands
    is_same = value.shape.element_type in NARROW_TYPES and value.shape.strides == operand.shape.strides
    return value if is_same and operand.shape.element_type == SUM_TYPE else None


def _as_narrow(view: View) -> View:
    narrow = _narrow(view.node)
    assert narrow is not None, "it was asked whether it is one"
    return View(narrow, view.dimensions)


def _converted(node: Node) -> Node | None:
    """The one user of the sums, where that makes f32 of them in the same places."""
    if len(node.users) != 1 or node.is_live_out:
        return None
    (user,) = node.users
    is_same = user.opcode == "convert" and user.shape.strides == node.shape.strides
    return user if is_same and user.shape.element_type == "f32" else None
