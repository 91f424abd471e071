"""Weight-only quantized matmul calls for tests, and their float64 reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from calls import Call, strides_of

from dynamic_quantization import in_eight_bits
from hlo_dispatch.vendor import registry

NAME = "own.narrow_product"
GROUPED = ("s4", "s8")
WEIGHTS = ("s4", "s8", "bf16", "f32")
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(jnp.bfloat16), "f16": np.dtype(np.float16)}
ROUNDING = {"f32": 1e-6, "bf16": 2.0**-8, "f16": 2.0**-10}


@dataclass
class QuantizedMatmulCall:
    """One call with its operands."""

    call: Call
    source: np.ndarray
    weights: np.ndarray
    scales: np.ndarray | None = None
    """(groups, columns)."""
    zeros: np.ndarray | None = None
    """(groups, columns), or 1 where one is for all."""
    zero: float = 0.0

    @property
    def wide(self) -> np.ndarray:
        """What is multiplied, in float64."""
        wide = self.weights.astype(np.float64) - self.zero
        if self.zeros is not None:
            wide -= np.repeat(self.zeros.astype(np.float64), len(wide) // len(self.zeros), axis=0)
        return self.scaled(wide)

    def scaled(self, wide: np.ndarray) -> np.ndarray:
        if self.scales is None:
            return wide
        return wide * np.repeat(self.scales.astype(np.float64), len(wide) // len(self.scales), axis=0)

    @property
    def expected(self) -> np.ndarray:
        """In float64, of what follows the product nothing."""
        return self.source.astype(np.float64) @ self.wide

    @property
    def magnitude(self) -> np.ndarray:
        """The sum of absolute products."""
        integers = self.scaled(np.abs(self.weights.astype(np.float64))) if self.zeros is not None or self.zero else 0
        return np.abs(self.source).astype(np.float64) @ (np.abs(self.wide) + integers)


def random_weights(generator: np.random.Generator, kind: str, dims: tuple[int, ...]) -> np.ndarray:
    """Whole numbers if that is what they are to be."""
    if kind == "s8":
        return generator.integers(-128, 128, dims, np.int8)
    if kind == "s4":
        return generator.integers(-8, 8, dims, np.int8).astype(jnp.int4)
    return generator.standard_normal(dims).astype(DTYPES[kind])


def quantized_matmul(
    rows: int, depth: int, columns: int, *, by_column: bool = False, dtype: str = "f32", result: str = "f32",
    layouts: Sequence[Sequence[int]] = ((0, 1), (0, 1)), seed: int = 0, kind: str = "s8", groups: int = 0,
    scales: str = "f32", scales_layout: Sequence[int] = (0, 1),
) -> QuantizedMatmulCall:  # fmt: skip
    """Random operands.

    Of s4 what lies side by side is made one more where it is odd.

    Args:
        by_column: whether the weights' rows lie side by side.
        layouts: the order in which the dimensions of source and result lie in memory.
        kind: what the weights are.
        groups: how many groups of rows have scales of their own; 0: there are no scales.
        scales: what those are.
    """
    if kind == "s4":
        depth, columns = (depth + depth % 2, columns) if by_column else (depth, columns + columns % 2)
    generator = np.random.default_rng([seed, rows, depth, columns])
    source = generator.standard_normal((rows, depth)).astype(DTYPES[dtype])
    weights = random_weights(generator, kind, (depth, columns))
    order = [1, 0] if by_column else [0, 1]
    spec = {"abi": registry.abi(), "src_type": dtype, "weights_type": kind, "dst_type": result}
    for role, dims, layout in (("src", [rows, depth], layouts[0]), ("weights", [depth, columns], order),
                               ("dst", [rows, columns], layouts[1])):  # fmt: skip
        spec |= {f"{role}_dims": dims, f"{role}_strides": strides_of(dims, layout)}
    operands = [np.ascontiguousarray(source.transpose(layouts[0])), np.ascontiguousarray(weights.transpose(order))]
    factors = None
    if groups:
        factors = (generator.random((groups, columns)) + 0.1).astype(DTYPES[scales])
        operands.append(np.ascontiguousarray(factors.transpose(scales_layout)))
        spec |= {"scales_type": scales, "scales_dims": [groups, columns]}
        spec["scales_strides"] = strides_of([groups, columns], scales_layout)
    call = Call(NAME, spec, operands, (rows, columns), DTYPES[result], tuple(layouts[1]))
    return QuantizedMatmulCall(call, source, weights, factors)


def with_zeros(product: QuantizedMatmulCall, zeros: np.ndarray | None, zero: float = 0.0) -> QuantizedMatmulCall:
    """The call with zero points."""
    spec, operands = product.call.spec, product.call.operands
    if zeros is not None:
        operands.append(zeros)
        kind = next(name for name, dtype in DTYPES.items() if dtype == zeros.dtype)
        spec |= {"zeros_type": kind, "zeros_dims": list(zeros.shape), "zeros_strides": [zeros.shape[1], 1]}
    if zero:
        spec["weights_zero"] = zero
    product.zeros, product.zero = zeros, zero
    return product


def with_rounded_source(product: QuantizedMatmulCall, group: int) -> QuantizedMatmulCall:
    """The call with a source that is rounded to eight bits, so many numbers with one scale."""
    product.call.spec["src_group"] = group
    product.source = in_eight_bits(product.source, group)
    return product


def with_whole_numbers(product: QuantizedMatmulCall, group: int) -> QuantizedMatmulCall:
    """Likewise, of whole numbers whose largest is 127 in each group: results are sums of integers."""
    source = np.random.default_rng(5).integers(-127, 128, product.source.shape).astype(np.float32)
    source[:, ::group] = 127
    product.call.operands[0][...] = source
    product.source = source
    product.call.spec["src_group"] = group
    return product


def packed(
    rows: int, depth: int, columns: int, *, block: int = 2, by_column: bool = True, groups: int = 0, dtype: str = "f32",
    layout: Sequence[int] = (0, 1),
) -> QuantizedMatmulCall:  # fmt: skip
    """A call whose weights are bytes with two unsigned numbers each."""
    product = quantized_matmul(
        rows, depth, columns, by_column=by_column, groups=groups, dtype=dtype, layouts=(layout, (0, 1))
    )
    product.weights = np.random.default_rng(depth).integers(0, 16, (depth, columns), np.uint8)
    adjacent = np.ascontiguousarray(product.weights.T if by_column else product.weights)
    blocks = adjacent.reshape(-1, 2, block // 2)
    product.call.operands[1] = blocks[:, 0] | blocks[:, 1] << 4
    product.call.spec |= {"weights_type": "u8", "weights_block": block}
    return product


def wrong(found: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, dtype: str = "f32") -> str:
    """What is wrong about a result in float64; nothing where it is right."""
    allowed = 1e-5 * magnitude + ROUNDING[dtype] * np.abs(expected) + 1e-30
    bad = ~(np.abs(found - expected) <= allowed)
    return f"{bad.sum()} of {bad.size}, first {found[bad][0]} not {expected[bad][0]}" if bad.any() else ""
