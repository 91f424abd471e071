"""Attribute fuzzer, normalization: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, onednn, tensors


def valid_calls() -> list[WireCall]:
    """Both statistics, all types, one row and many, rows of one value; with and without what follows."""
    made = []
    for statistics, source, result, dims, vectors in (
        ("variance", "f32", "f32", [5, 17], ("scale", "shift")),
        ("variance", "f32", "bf16", [2, 3, 16], ("scale", "shift")),
        ("variance", "bf16", "bf16", [4, 1], ()),
        ("mean_square", "f32", "f32", [1, 7], ("scale",)),
        ("mean_square", "bf16", "bf16", [3, 40], ("shift",)),
    ):
        attributes = {"statistics": statistics, "epsilon": 1e-3, "reciprocal": 1 / dims[-1]}
        attributes |= {f"{vector}_type": "f32" for vector in vectors}
        attributes |= tensors(src=(source, dims), dst=(result, dims))
        operands = [Array(source, dims), *(Array("f32", dims[-1:]) for _ in vectors)]
        made.append(onednn("layer_norm", attributes, operands, Array(result, dims)))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """In float64, without scale and shift."""
    if said["statistics"] == "variance":
        source = source - source.mean(-1, keepdims=True)
    return source / np.sqrt((source * source).mean(-1, keepdims=True) + said["epsilon"])
