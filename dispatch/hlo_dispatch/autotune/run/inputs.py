"""Random inputs for a region, valid for what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from hlo_dispatch.ir.entry_parameters import unread_parameters
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import FLOAT_TYPES, Shape, shape_of

MIXED, POSITIVE = "mixed", "positive"
KINDS = (MIXED, POSITIVE)
"""Order of attempts: positive values where mixed ones give NaN (a variance under a square root)."""

LOWER, UPPER = "lower_triangle", "upper_triangle"
"""Name prefixes of parameters that are triangular in their last two dimensions."""

_LARGEST_INDEX = 2
_QUANTIZED = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}
"""Integer types of quantized values, and their bounds (the upper one exclusive)."""
_FLOATS = FLOAT_TYPES | {"f64"}
_WIDE_INTEGERS = frozenset(f"{sign}{bits}" for sign in "su" for bits in (16, 32, 64))
_DEFINED_FOR_ALL_INTEGERS = frozenset(
    (
        *("parameter", "constant", "iota", "tuple", "get-tuple-element", "fusion", "call"),
        *("copy", "bitcast", "transpose", "reshape", "broadcast", "reverse", "slice", "concatenate", "pad"),
        *("dot", "convolution", "add", "subtract", "multiply", "negate", "maximum", "minimum", "convert"),
        *("reduce", "reduce-window", "sort", "compare", "select"),
    )
)
"""Opcodes for which no integer is out of range, as it is for an index, a trip count, a divisor or a shift."""
# Larger arrays repeat this many values; a prime, so that rows differ.
_DIFFERENT_VALUES = 131_071


def random_inputs(module: Module, shapes: Sequence[Shape], seed: int, kind: str = MIXED) -> list[Any]:
    """Random NumPy arrays of these shapes.

    Floating values are normal (or positive, around one), scaled so that sums over a row stay small; integers are of
    their type's whole range where all that the module computes is defined for it, else small enough to be indices; what
    nobody reads is zeros. Cholesky's matrices are positive definite; square ones of
    triangular systems, of LU and of QR have a dominant diagonal, so that rounding is all that results differ by;
    Householder reflectors shrink what they reflect. Matrices of a program with loops shrink what they multiply: else
    the smallest difference would grow from one iteration to the next. Parameters that are named after a triangle are
    one.
    """
    random = np.random.default_rng(seed)
    operations = _operations(module)
    definite = any(word in name for name in operations for word in ("cholesky", "potrf"))
    dominant = any(word in name for name in operations for word in ("triangular", "trsm", "getrf", "geqrf"))
    reflects = any(word in name for name in operations for word in ("orgqr", "ungqr"))
    longest = max((size for shape in shapes for size in shape.dimensions), default=1)
    most = max((len(shape.dimensions) for shape in shapes), default=0)
    triangles = _triangles(module)
    unread = unread_parameters(module)
    has_whole_range = _is_defined_for_all_integers(module)
    values: list[Any] = []
    for number, shape in enumerate(shapes):
        if number in unread:
            values.append(np.zeros(shape.dimensions, dtype_of(shape)))
            continue
        value = _random(random, shape, kind, has_whole_range=has_whole_range)
        if (definite or dominant) and _is_square(shape):
            value = _well_conditioned(value, definite=definite)
        if reflects and len(shape.dimensions) < most:
            # The factors tau: a reflector's vector has entries of variance 1/16, and its first one is 1.
            value = np.abs(value) / (1 + longest / 16)
        if "while" in operations and len(shape.dimensions) >= 2 and shape.element_type in _FLOATS:
            value = value * (2 / np.sqrt(max(shape.dimensions[-2:])))
        if number in triangles:
            value = triangles[number](value)
        values.append(np.ascontiguousarray(value.astype(dtype_of(shape), copy=False)))
    return values


def dtype_of(shape: Shape) -> np.dtype[Any]:
    """The NumPy type of a shape's elements."""
    names = {"bf16": "bfloat16", "f8e5m2": "float8_e5m2", "f8e4m3fn": "float8_e4m3fn", "s4": "int4", "u4": "uint4"}
    if shape.element_type in names:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, names[shape.element_type]))
    letter, bits = shape.element_type[0], shape.element_type[1:]
    names = {"p": "bool", "s": f"int{bits}", "u": f"uint{bits}", "f": f"float{bits}", "c": f"complex{bits}"}
    return np.dtype(names[letter])


def _operations(module: Module) -> AbstractSet[str]:
    """Opcodes and custom-call targets of the module."""
    return module.opcodes | module.custom_call_targets


def _triangles(module: Module) -> dict[int, Callable[[Any], Any]]:
    """Number of each parameter that is a triangle → what makes one of a matrix."""
    kinds = {LOWER: np.tril, UPPER: np.triu}
    return {
        instruction.parameter_number: kinds[kind]
        for instruction in module.entry.instructions
        if instruction.opcode == "parameter" and (kind := instruction.name.partition(".")[0]) in kinds
    }


def _is_defined_for_all_integers(module: Module) -> bool:
    """Whether integers are values only, and none of them becomes a floating one, which could overflow."""
    if not module.opcodes <= _DEFINED_FOR_ALL_INTEGERS:
        return False
    converts = (instruction for instruction in module.instructions if instruction.opcode == "convert")
    return all(shape_of(convert.shape).element_type not in _FLOATS for convert in converts)


def _random(random: np.random.Generator, shape: Shape, kind: str, *, has_whole_range: bool) -> Any:
    size = (_DIFFERENT_VALUES,) if shape.elements > _DIFFERENT_VALUES else shape.dimensions
    if has_whole_range and shape.element_type in _WIDE_INTEGERS:
        bounds = np.iinfo(dtype_of(shape))
        value = random.integers(bounds.min, bounds.max, size, bounds.dtype, endpoint=True)
    else:
        value = _values(random, shape, kind, size)
    return np.resize(value, shape.dimensions)


def _values(random: np.random.Generator, shape: Shape, kind: str, size: tuple[int, ...]) -> Any:
    match shape.element_type[0]:
        case "p":
            return random.random(size) < 0.5
        case "s" | "u":
            if shape.element_type in _QUANTIZED:
                return random.integers(*_QUANTIZED[shape.element_type], size)
            return random.integers(0, _LARGEST_INDEX, size)
        case "c":
            return random.standard_normal(size) / 4 + 1j * random.standard_normal(size) / 4
        case _ if kind == POSITIVE:
            return random.uniform(0.5, 1.5, size)
        case _:
            return random.standard_normal(size, dtype=np.float32) / 4


def _is_square(shape: Shape) -> bool:
    dimensions = shape.dimensions
    return len(dimensions) >= 2 and dimensions[-1] == dimensions[-2] and shape.element_type[0] in "fc"


def _well_conditioned(value: Any, *, definite: bool) -> Any:
    size = value.shape[-1]
    wide = value.astype(np.complex128 if np.iscomplexobj(value) else np.float64)
    if definite:
        return wide @ np.conj(np.swapaxes(wide, -1, -2)) / size + np.eye(size)
    return wide / np.sqrt(size) + 2 * np.eye(size)
