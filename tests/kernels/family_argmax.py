"""Attribute fuzzer, places of maxima: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors


def valid_calls() -> list[WireCall]:
    """One row and many, of whole vectors and not, divided among threads and not."""
    made = []
    for dtype, dims in (("f32", [5, 17]), ("bf16", [2, 3, 1040]), ("f32", [100_003]), ("bf16", [1, 1])):
        attributes = tensors(src=(dtype, dims), dst=("s32", dims[:-1]))
        del attributes["dst_type"]
        made.append(own("argmax", attributes, [Array(dtype, dims)], Array("s32", dims[:-1])))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """Numbers are compared, not rounded."""
    return source.argmax(-1)
