"""Elementwise regions: connected elementwise instructions as a function of one variable, and their evaluation in
float64.

The region grows from a value through elementwise instructions whose other operands are scalar constants. An *exit* is
an instruction that post-dominates the region so far: up to there the region has one input and one output, and is
y = f(x) whatever its spelling. Evaluation omits the roundings to bf16 that XLA inserts between the steps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_SHAPES
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.ir.shape import FLOAT_TYPES
from hlo_dispatch.pattern.functions import FUNCTIONS
from hlo_dispatch.process.native import native

Array = np.ndarray[Any, np.dtype[Any]]
REGION_TYPES = FLOAT_TYPES | {"pred"}
_REGION_OPCODES = ELEMENTWISE | PEEL_ROUNDING_AND_SHAPES
_MAX_REGION = 256  # XLA spells one erfc in 110 instructions
_MAX_EXITS = 12


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
    "logistic": FUNCTIONS["sigmoid"].evaluate,
    "negate": np.negative,
    "round-nearest-afz": _rounded_away_from_zero,
    "round-nearest-even": np.rint,
    "rsqrt": FUNCTIONS["rsqrt"].evaluate,
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


class ElementwiseRegion(NamedTuple):
    """A region of elementwise instructions that all depend on `entry`, in topological order, with its exits."""

    entry: Node
    nodes: tuple[Node, ...]
    exits: tuple[int, ...]
    """Positions in `nodes` of the exits, nearest first."""
    constants: tuple[float, ...]
    """Every scalar constant the region uses."""

    def structure(self) -> tuple[object, ...]:
        """A name-free key of the computed function: regions with equal keys are the same function."""
        return native().region_structure(self.entry, self.nodes, scalar_constant)

    def evaluate(self, x: Array) -> list[Array]:
        """Evaluates f(x) at each exit, in float64; `x` is float64 of any length."""
        values: dict[Node, Array] = {self.entry: x}
        with np.errstate(all="ignore"):
            for node in self.nodes:
                arguments = [values[o] if o in values else scalar_constant(o) for o in node.operands]
                values[node] = apply(node, arguments)
        return [np.asarray(values[self.nodes[position]], dtype=np.float64) for position in self.exits]


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


def grow_region(
    entry: Node, is_owned: Callable[[Node], bool], is_materialized: Callable[[Node], bool]
) -> ElementwiseRegion:
    """Grows the elementwise region of one-variable functions that starts at `entry`'s users.

    Args:
        entry: the variable x.
        is_owned: whether another match owns an instruction; the region ends in front of it.
        is_materialized: whether a value must stay in memory; the region may end in one but not continue past it.
    """
    nodes, exits, constants = native().grow_region(
        entry,
        is_owned,
        is_materialized,
        scalar_constant,
        _REGION_OPCODES,
        REGION_TYPES,
        FLOAT_TYPES,
        _MAX_REGION,
        _MAX_EXITS,
    )
    return ElementwiseRegion(entry, nodes, exits, tuple(dict.fromkeys(constants)))
