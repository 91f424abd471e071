"""Attribute fuzzer, scaling by channel: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, channels_last, own, strides, tensors


def valid_calls() -> list[WireCall]:
    """Gates of each image and of all, what adds, subtracts and is linear, numbers, one element; both types."""
    made = []
    for dtype, dims, others in (
        ("f32", [2, 17, 5, 3], [("mul", [2, 17, 1, 1])]),
        ("bf16", [1, 32, 7], [("mul", [1, 32, 1]), ("add", [1, 32, 1])]),
        ("f32", [3, 3, 5, 7], [("mul", [1, 1, 1, 1]), ("sub", [1, 3, 1, 1]), ("mul", [3, 1, 1, 1])]),
        ("bf16", [4, 33], [("mul", [4, 33])]),
        ("f32", [1, 1], [("mul", [1, 1])]),
    ):
        order = strides if len(dims) == 2 else channels_last
        attributes = tensors(src=(dtype, dims), dst=(dtype, dims))
        attributes |= {"src_strides": order(dims), "dst_strides": order(dims)}
        for number, (algorithm, other) in enumerate(others):
            described = {"type": dtype, "dims": other, "strides": order(other)}
            attributes[f"post_op_{number}"] = {"kind": "binary", "algorithm": algorithm} | described
        line = {"kind": "eltwise", "algorithm": "linear", "alpha": 0.5, "beta": 2.0}
        operands = [Array(dtype, dims), *(Array(dtype, other) for _, other in others)]
        made.append(own("channel_scaling", attributes, operands, Array(dtype, dims)))
        made.append(own("channel_scaling", attributes | {f"post_op_{len(others)}": line}, operands, Array(dtype, dims)))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """In float64; what it does with its source are post-ops."""
    return source
