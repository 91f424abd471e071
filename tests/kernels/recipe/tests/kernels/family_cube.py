"""Attribute fuzzer, third powers: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors


def valid_calls() -> list[WireCall]:
    """One row and many."""
    return [
        own("cube", tensors(src=("f32", dims), dst=("f32", dims)), [Array("f32", dims)], Array("f32", dims))
        for dims in ([5, 17], [1, 3, 40_000])
    ]


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    return source**3
