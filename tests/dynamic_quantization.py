"""Dynamic quantization in NumPy: what rows are rounded to by `freeze(..., activations="int8")` and by the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALLEST = 2.0**-100


def group_of(depth: int) -> int:
    """Numbers with one scale where the weights have one for each output."""
    return 64 if depth % 64 == 0 else depth


def in_eight_bits(x: Any, group: int) -> np.ndarray:
    """What the last dimension is rounded to, each group with one scale: f32 up to there, then exact."""
    x = np.asarray(x, np.float32)
    apart = x.reshape(*x.shape[:-1], -1, group)
    largest = np.maximum(np.abs(apart).max(-1, keepdims=True), np.float32(SMALLEST))
    numbers = np.rint(apart * (np.float32(127) / largest))
    scales = largest * np.float32(1 / 127)
    return (numbers.astype(np.float64) * scales.astype(np.float64)).reshape(x.shape)
