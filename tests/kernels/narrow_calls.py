"""Products of few rows for tests, and what they give in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from calls import Call, strides_of

from hlo_dispatch.vendor import registry

NAME = "own.narrow_product"
WEIGHTS = ("s8", "bf16", "f32")
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(jnp.bfloat16), "f16": np.dtype(np.float16)}
ROUNDING = {"f32": 1e-6, "bf16": 2.0**-8, "f16": 2.0**-10}


@dataclass
class NarrowProduct:
    """One call with its operands."""

    call: Call
    source: np.ndarray
    weights: np.ndarray

    @property
    def expected(self) -> np.ndarray:
        """In float64, of what follows the product nothing."""
        return self.source.astype(np.float64) @ self.weights.astype(np.float64)

    @property
    def magnitude(self) -> np.ndarray:
        """The sum of absolute products."""
        return np.abs(self.source).astype(np.float64) @ np.abs(self.weights.astype(np.float64))


def random_weights(generator: np.random.Generator, kind: str, dims: tuple[int, ...]) -> np.ndarray:
    """Whole numbers if that is what they are to be."""
    if kind == "s8":
        return generator.integers(-128, 128, dims, np.int8)
    return generator.standard_normal(dims).astype(DTYPES[kind])


def narrow_product(
    rows: int, depth: int, columns: int, *, by_column: bool = False, dtype: str = "f32", result: str = "f32",
    layouts: Sequence[Sequence[int]] = ((0, 1), (0, 1)), seed: int = 0, kind: str = "s8",
) -> NarrowProduct:  # fmt: skip
    """Random operands.

    Args:
        by_column: whether the weights' rows lie side by side.
        layouts: the order in which the dimensions of source and result lie in memory.
        kind: what the weights are.
    """
    generator = np.random.default_rng([seed, rows, depth, columns])
    source = generator.standard_normal((rows, depth)).astype(DTYPES[dtype])
    weights = random_weights(generator, kind, (depth, columns))
    order = [1, 0] if by_column else [0, 1]
    spec = {"abi": registry.abi(), "src_type": dtype, "weights_type": kind, "dst_type": result}
    for role, dims, layout in (("src", [rows, depth], layouts[0]), ("weights", [depth, columns], order),
                               ("dst", [rows, columns], layouts[1])):  # fmt: skip
        spec |= {f"{role}_dims": dims, f"{role}_strides": strides_of(dims, layout)}
    operands = [np.ascontiguousarray(source.transpose(layouts[0])), np.ascontiguousarray(weights.transpose(order))]
    call = Call(NAME, spec, operands, (rows, columns), DTYPES[result], tuple(layouts[1]))
    return NarrowProduct(call, source, weights)


def wrong(found: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, dtype: str = "f32") -> str:
    """What is wrong about a result in float64; nothing where it is right."""
    allowed = 1e-5 * magnitude + ROUNDING[dtype] * np.abs(expected) + 1e-30
    bad = ~(np.abs(found - expected) <= allowed)
    return f"{bad.sum()} of {bad.size}, first {found[bad][0]} not {expected[bad][0]}" if bad.any() else ""
