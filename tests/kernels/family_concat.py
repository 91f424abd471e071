"""Attribute fuzzer, concatenation: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, onednn, tensors


def valid_calls() -> list[WireCall]:
    """Two and more, single rows and columns, by columns, both types; as many as oneDNN concatenates at once."""
    made = []
    for dtype, rows, columns in (
        ("f32", 49, [64, 32]),
        ("f32", 1, [5, 1, 17]),
        ("bf16", 9, [24, 7]),
        ("f32", 3, [1]),
        ("f32", 4, [3] * 16),
    ):
        roles = ["src", *(f"src_{number}" for number in range(1, len(columns)))]
        sources = {role: (dtype, [rows, size]) for role, size in zip(roles, columns, strict=True)}
        result = Array(dtype, [rows, sum(columns)])
        attributes = tensors(**sources, dst=(dtype, result.dims)) | {"sources": len(columns)}
        made.append(onednn("concat", attributes, [Array(dtype, [rows, size]) for size in columns], result))
    return made


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """What was found and what was expected."""
    roles = ["src", *(f"src_{number}" for number in range(1, said["sources"]))]
    sources = [
        placed(said, role, value, said.get(f"{role}_offset", 0)) for role, value in zip(roles, given, strict=True)
    ]
    return [("dst", placed(said, "dst", results[0]), np.concatenate(sources, axis=1))]
