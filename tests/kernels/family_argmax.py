"""Attribute fuzzer, places of maxima: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors


def valid_calls() -> list[WireCall]:
    """One row and many, of whole vectors and not, divided among threads and not."""
    made = []
    for dtype, dims, ones in (
        ("f32", [5, 17], []), ("bf16", [2, 3, 1040], []), ("f32", [100_003], []), ("bf16", [1, 1], []),
        ("f32", [3, 70], [1, 1]),
    ):  # fmt: skip
        places = [*dims[:-1], *ones]
        attributes = tensors(src=(dtype, [*dims, *ones]), dst=("s32", places))
        del attributes["dst_type"]
        made.append(own("argmax", attributes, [Array(dtype, [*dims, *ones])], Array("s32", places)))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """Numbers are compared, not rounded."""
    long = [number for number, size in enumerate(source.shape) if size != 1]
    is_last = source.shape[-1] != 1 or list(dims) == list(source.shape[:-1])
    return source.argmax(-1 if is_last or not long else long[-1])
