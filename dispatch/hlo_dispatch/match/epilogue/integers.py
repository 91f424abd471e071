"""Integers in f32 epilogues: quantization at the end of a chain, and integer addends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import Dimension, View, project_dimensions, with_dense_strides
from hlo_dispatch.match.epilogue.operand import OperandFinder
from hlo_dispatch.match.epilogue.steps import PostOp, Step
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES

BOUNDS = {"s8": (-128.0, 127.0), "u8": (0.0, 255.0)}
"""The least and the largest of each type of integers."""
LEAST_FACTOR = 1e-30
"""Bound that keeps a factor and its reciprocal in the range of f32."""


def quantizes(convert: Node) -> bool:
    """Whether a convert to integers receives whole numbers in range, so that it changes none of them."""
    if convert.opcode != "convert" or convert.shape.element_type not in INTEGER_TYPES:
        return False
    (node,) = convert.operands
    low, high = -math.inf, math.inf
    is_rounded = False
    while node.shape.element_type == "f32":
        if node.opcode == "round-nearest-even":
            is_rounded = True
            (node,) = node.operands
            continue
        bounded = _bounded(node)
        if bounded is None:
            break
        bounds = bounded.low, bounded.high
        if not is_rounded and any(math.isfinite(bound) and bound != round(bound) for bound in bounds):
            return False
        node, low, high = bounded.value, max(low, bounded.low), min(high, bounded.high)
    least, most = BOUNDS[convert.shape.element_type]
    return is_rounded and low >= least and high <= most


class _Bounded(NamedTuple):
    value: Node
    low: float
    high: float


def _bounded(node: Node) -> _Bounded | None:
    """The bounds that a clamp, maximum or minimum puts on a value; None: it does something else."""
    constants = [scalar_constant(operand) for operand in node.operands]
    if node.opcode == "clamp":
        low, _, high = constants
        return None if low is None or high is None else _Bounded(node.operands[1], low, high)
    if node.opcode not in ("maximum", "minimum") or (constants[0] is None) == (constants[1] is None):
        return None
    number = next(constant for constant in constants if constant is not None)
    value = node.operands[0] if constants[0] is None else node.operands[1]
    return _Bounded(value, number, math.inf) if node.opcode == "maximum" else _Bounded(value, -math.inf, number)


def without_rounding(post_ops: Sequence[PostOp], kind: str) -> tuple[PostOp, ...]:
    """The post-ops without the trailing ones that a store of integers implies: rounding to even, and saturation."""
    count = len(post_ops)
    while count and _is_in_store(post_ops[count - 1], *BOUNDS[kind]):
        count -= 1
    return tuple(post_ops[:count])


def _is_in_store(post_op: PostOp, least: float, most: float) -> bool:
    if post_op.kind != "eltwise":
        return False
    is_bound = post_op.algorithm == "clip" and post_op.alpha <= least and post_op.beta >= most
    return is_bound or post_op.algorithm == "round"


def add_of_integers(
    current: Node,
    user: Node,
    destination: tuple[Dimension, ...],
    operand_of: OperandFinder,
) -> Step | None:
    """The step that adds c · integers, which are in memory, to the value: c · (value / c + integers).

    The kernel reads the integers directly: two more multiplications per value, in registers, instead of a separate loop
    of XLA's that converts them to f32.
    """
    if user.opcode != "add":
        return None
    scaled = _scaled(user.operands[1] if user.operands[0] is current else user.operands[0])
    view = None if scaled is None else operand_of(user, scaled.values, INTEGER_TYPES)
    dimensions = None if view is None else project_dimensions(view.dimensions, user.shape, destination)
    if scaled is None or view is None or dimensions is None:
        return None
    place = View(view.node, with_dense_strides(dimensions, destination))
    if scaled.factor == 1.0:
        return Step((user,), (PostOp("binary", "add", "({} + {operand})", operand=place),), destination)
    added = PostOp("binary", "add", f"({{}} + {scaled.factor:.4g}·{{operand}})", operand=place)
    less, more = (PostOp("eltwise", "linear", "{}", by) for by in (1.0 / scaled.factor, scaled.factor))
    return Step((user,), (less, added, more), destination)


class _Scaled(NamedTuple):
    """Integers as f32 numbers: factor · values."""

    values: Node
    """In s8 or u8, with the layout of their products."""
    factor: float


def _scaled(node: Node) -> _Scaled | None:
    """The decomposition of an f32 value into integers times one nonzero number; None: it has none."""
    factor = 1.0
    if node.opcode == "multiply":
        left, right = (scalar_constant(operand) for operand in node.operands)
        if (left is None) == (right is None):
            return None
        factor, node = (left, node.operands[1]) if left is not None else (right or 0.0, node.operands[0])
    if not LEAST_FACTOR < abs(factor) < 1 / LEAST_FACTOR or node.opcode != "convert":
        return None
    (values,) = node.operands
    is_same = values.shape.element_type in INTEGER_TYPES and values.shape.strides == node.shape.strides
    return _Scaled(values, factor) if is_same else None
