"""Attribute fuzzer, products of integers: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors

_BITS = {"s8": 8, "u8": 8, "s16": 16, "s32": 32}


def _call(types: tuple[str, str, str], source: list[int], weights: list[int], result: list[int]) -> WireCall:
    arrays = zip(types, (source, weights, result), strict=True)
    described = tensors(**dict(zip(("src", "weights", "dst"), arrays, strict=True)))
    operands = [Array(kind, dims) for kind, dims in zip(types, (source, weights), strict=False)]
    return own("integer_product", described, operands, Array(types[2], result))


def valid_calls() -> list[WireCall]:
    """All types, odd depths, a batch, and more rows than columns."""
    return [
        _call(("s8", "s8", "s32"), [7, 33], [33, 40], [7, 40]),
        _call(("u8", "s8", "s8"), [5, 16], [16, 3], [5, 3]),
        _call(("s16", "s16", "s16"), [3, 2, 9], [1, 9, 35], [3, 2, 35]),
        _call(("s32", "s32", "s32"), [50, 5], [5, 2], [50, 2]),
    ]


def formula(said: dict[str, Any], source: np.ndarray, weights: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """Exact, and wrapped to the result's bits."""
    bits = _BITS[said["dst_type"]]
    sums = np.rint(source @ weights) % 2**bits
    return sums if said["dst_type"] == "u8" else np.where(sums < 2 ** (bits - 1), sums, sums - 2**bits)
