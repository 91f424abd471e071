"""Mask redirection, a pass over a flat graph ahead of matching: comparisons read an activation's result instead of its
input.

The gradient of r = max(z, 0) is dy where z > 0. Then z has two users, and a kernel that computes it could
not fuse r, although r > 0 is the same mask:

    max(z, low) > k      is  z > k   for k >= low
    min(z, high) < k     is  z < k   for k <= high
    clamp(low, z, high)  keeps both, for low <= k < high and low < k <= high

and so do their opposites, <= and >=. Where all other users of z are such comparisons, they read r instead; z then
has the activation as its only user, and need not be materialized. NaN stays NaN in r and compares as false.

Where r is single precision that holds half precision's values, and is rounded to that and widened again (JAX 0.10
writes half precision so), the comparisons read the widened value: the same values, and a kernel can end there.
"""

from __future__ import annotations

import math

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import is_widening
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.ir.shape import FLOAT_TYPES
from hlo_dispatch.match.epilogue.steps import is_half_valued

_BOUNDING = frozenset(("clamp", "maximum", "minimum"))
_MIRRORED = {"GT": "LT", "LT": "GT", "GE": "LE", "LE": "GE"}


def redirect_masks(graph: FlatGraph) -> None:
    """Redirects comparisons to results of bounding activations, in place, where that frees the activation's input."""
    for result in graph.nodes:
        bounded = _bounded(result) if result.opcode in _BOUNDING else None
        if bounded is None:
            continue
        value, low, high = bounded
        others = [user for user in value.users if user is not result]
        read = _where_calls_end(result, low, high)
        if (
            read is None
            or value.is_live_out
            or not others
            or not all(_answers(read, value, user, low, high) for user in others)
        ):
            continue
        for comparison in others:
            comparison.operands = tuple(read if operand is value else operand for operand in comparison.operands)
        value.users = [result]
        read.users = sorted({*read.users, *others}, key=lambda node: node.index)


def _bounded(node: Node) -> tuple[Node, float, float] | None:
    """(value, low, high) where the node clamps a value between constants."""
    if node.opcode == "clamp":
        low, value, high = node.operands
        lowest, highest = scalar_constant(low), scalar_constant(high)
    elif node.opcode in ("maximum", "minimum"):
        value, bound = node.operands
        if scalar_constant(value) is not None:
            value, bound = bound, value
        limit = scalar_constant(bound)
        lowest, highest = (limit, math.inf) if node.opcode == "maximum" else (-math.inf, limit)
    else:
        return None
    if lowest is None or highest is None or value.shape.element_type not in FLOAT_TYPES:
        return None
    return value, lowest, highest


def _where_calls_end(result: Node, low: float, high: float) -> Node | None:
    """The value that equals `result` at which a call can end: `result`, or what is rounded and widened again.

    A call does not end in single precision that holds half precision's values (`rounded_alike`).
    """
    if result.shape.element_type != "f32" or not is_half_valued(result):
        return result
    for rounded in result.users:
        kind = rounded.shape.element_type
        if rounded.opcode != "convert" or not all(_is_exact(bound, kind) for bound in (low, high)):
            continue
        again = next((user for user in rounded.users if is_widening(user)), None)
        if again is not None and again.shape.strides == result.shape.strides:
            return again
    return None


def _is_exact(value: float, element_type: str) -> bool:
    """Whether a half precision type represents this number exactly."""
    with np.errstate(over="ignore"):
        if element_type == "f16":
            return float(np.float16(value)) == value
        single = np.float32(value)
    # bfloat16 is the upper half of single precision.
    return element_type == "bf16" and float(single) == value and not single.view(np.uint32) & 0xFFFF


def _answers(result: Node, value: Node, user: Node, low: float, high: float) -> bool:
    """Whether `user` compares `value` with a constant, and the same comparison of `result` gives the same mask."""
    if user.opcode != "compare" or user.index < result.index or user.has_control_predecessors:
        return False
    direction, (left, right) = user.proto.comparison_direction, user.operands
    if right is value:
        left, right, direction = right, left, _MIRRORED.get(direction, direction)
    constant = scalar_constant(right)
    if left is not value or constant is None:
        return False
    if direction in ("GT", "LE"):
        return low <= constant < high
    return direction in ("LT", "GE") and low < constant <= high
