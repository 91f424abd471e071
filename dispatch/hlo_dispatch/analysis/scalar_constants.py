"""Scalar constants: the number that all elements of a value share, where it is known at compile time.

Evaluation in float64 of elementwise instructions, which omits the roundings to bf16 that XLA inserts between them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_SHAPES
from hlo_dispatch.ir.opcode import ELEMENTWISE

Array = np.ndarray[Any, np.dtype[Any]]


def logistic(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def rsqrt(x: Any) -> Any:
    return 1.0 / np.sqrt(x)


def _erf(x: Array) -> Array:
    # SciPy comes with jax; only regions that hold an erf need it. It has no types.
    from scipy.special import erf  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    return erf(x)


def _rounded_away_from_zero(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _clamped(low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


COMPARISONS: dict[str, Callable[..., Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cosine": np.cos,
    "erf": _erf,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "floor": np.floor,
    "is-finite": np.isfinite,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": logistic,
    "negate": np.negative,
    "round-nearest-afz": _rounded_away_from_zero,
    "round-nearest-even": np.rint,
    "rsqrt": rsqrt,
    "sign": np.sign,
    "sine": np.sin,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "add": np.add,
    "atan2": np.arctan2,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "power": np.power,
    "subtract": np.subtract,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "select": np.where,
    "clamp": _clamped,
}
assert set(_FUNCTIONS) | {"compare", "convert"} == ELEMENTWISE, "every elementwise opcode needs its function"


def apply(node: Node, arguments: Sequence[Any]) -> Array:
    """Evaluates one elementwise instruction; shape and type changes return their operand's value."""
    if node.opcode in PEEL_ROUNDING_AND_SHAPES:
        return arguments[0]
    if node.opcode == "compare":
        return COMPARISONS[node.proto.comparison_direction](*arguments)
    return _FUNCTIONS[node.opcode](*arguments)


def scalar_constant(node: Node) -> float | None:
    """The value that all elements of `node` share, if it is known at compile time; else None."""
    # Not by recursion: a network's residual stream is one elementwise chain of thousands of instructions.
    if node.scalar is not False:
        return node.scalar
    pending = [node]
    while pending:
        current = pending[-1]
        unknown = None
        for operand in _scalar_operands(current):
            if operand.scalar is None:
                unknown = None
                break
            if operand.scalar is False and unknown is None:
                unknown = operand
        if unknown is not None:
            pending.append(unknown)
        else:
            current.scalar = _scalar_constant(current)
            pending.pop()
    return node.scalar


def _scalar_operands(node: Node) -> tuple[Node, ...]:
    """The operands that decide whether `node` is a scalar constant."""
    if node.opcode == "broadcast" or node.opcode in PEEL_ROUNDING_AND_SHAPES:
        return node.operands[:1]
    return node.operands if node.opcode in ELEMENTWISE else ()


def _scalar_constant(node: Node) -> float | None:
    """The scalar constant of `node`, from its operands, which are evaluated unless one of them has none."""
    opcode = node.opcode
    if opcode == "constant":
        return _literal_scalar(node) if node.shape.elements == 1 else None
    arguments = [operand.scalar for operand in _scalar_operands(node)]
    # By identity: a constant may be the number 0, which equals False.
    for value in arguments:
        if value is None or value is False:
            return None
    if not arguments:
        return None
    if opcode not in ELEMENTWISE or opcode in PEEL_ROUNDING_AND_SHAPES:
        return arguments[0]
    with np.errstate(all="ignore"):
        return float(apply(node, [np.float64(value) for value in arguments]))


def _literal_scalar(node: Node) -> float | None:
    literal, kind = node.proto.literal, node.shape.element_type
    if kind == "f32":
        return float(literal.f32s[0])
    if kind == "f64":
        return float(literal.f64s[0])
    if kind == "bf16":
        return struct.unpack("<f", b"\0\0" + literal.bf16s[:2])[0]
    if kind == "f16":
        return float(np.frombuffer(literal.f16s[:2], np.float16)[0])
    if kind == "pred":
        return float(literal.preds[0])
    if kind == "s32":
        return float(literal.s32s[0])
    if kind in ("s8", "u8"):
        held = literal.s8s if kind == "s8" else literal.u8s
        return float(int.from_bytes(held[:1], signed=kind == "s8"))
    return None
