"""Attribute fuzzer, elementwise products and sums: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, channels_last, onednn, strides, tensors

_RELU = {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}


def valid_calls() -> list[WireCall]:
    """A gate, a scale and a shift, and rows of numbers; all types, one element too."""
    made = []
    for dtype, dims, others in (
        ("f32", [1, 17, 5, 3], [[1, 17, 1, 1]]),
        ("f32", [2, 16, 4], [[1, 16, 1], [1, 16, 1]]),
        ("bf16", [1, 24, 3, 3], [[1, 24, 1, 1], [1, 24, 3, 3]]),
        ("f32", [1, 32, 5, 3], [[1, 32, 1, 1], [1, 32, 5, 3]]),
        ("bf16", [1, 48, 1, 7], [[1, 48, 1, 1]]),
        ("f32", [7, 33], [[7, 33]]),
        ("f32", [1, 1], [[1, 1]]),
    ):
        attributes = tensors(src=(dtype, dims), dst=(dtype, dims))
        steps = strides if len(dims) == 2 else channels_last
        attributes |= {"src_strides": steps(dims), "dst_strides": steps(dims)}
        for number, other in enumerate(others):
            described = {"type": dtype, "dims": other, "strides": steps(other)}
            algorithm = "add" if number else "mul"
            attributes[f"post_op_{number}"] = {"kind": "binary", "algorithm": algorithm} | described
        attributes[f"post_op_{len(others)}"] = _RELU
        operands = [Array(dtype, dims), *(Array(dtype, other) for other in others)]
        made.append(onednn("binary", attributes, operands, Array(dtype, dims)))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """In float64; what it does with its source are post-ops like those behind them."""
    return source
