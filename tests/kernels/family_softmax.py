"""Attribute fuzzer, softmax: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, onednn, tensors


def valid_calls() -> list[WireCall]:
    """Both algorithms, all types, one row and many."""
    made = []
    for algorithm, dtype, dims in (("softmax", "f32", [5, 17]), ("log_softmax", "bf16", [2, 3, 16]),
                                   ("log_softmax", "f32", [1, 7]), ("softmax", "bf16", [4, 1])):  # fmt: skip
        attributes = {"algorithm": algorithm} | tensors(src=(dtype, dims), dst=(dtype, dims))
        made.append(onednn("softmax", attributes, [Array(dtype, dims)], Array(dtype, dims)))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    differences = source - source.max(-1, keepdims=True)
    logarithms = differences - np.log(np.exp(differences).sum(-1, keepdims=True))
    return logarithms if said["algorithm"] == "log_softmax" else np.exp(logarithms)
