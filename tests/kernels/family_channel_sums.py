"""Attribute fuzzer, means over space: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, channels_last, own, tensors


def valid_calls() -> list[WireCall]:
    """Images of one, two and three dimensions, sums of one element, and results of another type."""
    made = []
    for dtype, result_dtype, dims in (
        ("f32", "f32", [2, 17, 5, 3]),
        ("bf16", "bf16", [1, 48, 31]),
        ("bf16", "f32", [1, 5, 3, 4, 2]),
        ("f32", "bf16", [3, 1, 1]),
    ):
        summed = [*dims[:2], *([1] * len(dims[2:]))]
        count = len(dims) - 2
        attributes = tensors(src=(dtype, dims), dst=(result_dtype, summed))
        attributes |= {"src_strides": channels_last(dims), "dst_strides": channels_last(summed)}
        attributes |= {"algorithm": "average", "window": dims[2:], "strides": [1] * count, "dilations": [0] * count}
        attributes |= {"padding_low": [0] * count, "padding_high": [0] * count}
        operands, result = [Array(dtype, dims)], Array(result_dtype, summed)
        made.append(own("channel_sums", attributes, operands, result))
        line = {"kind": "eltwise", "algorithm": "linear", "alpha": float(np.prod(dims[2:])), "beta": 0.5}
        made.append(own("channel_sums", attributes | {"post_op_0": line}, operands, result))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    return source.mean(axis=tuple(range(2, source.ndim)), keepdims=True)
