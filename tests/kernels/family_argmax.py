"""Attribute fuzzer, places of maxima and minima: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors


def valid_calls() -> list[WireCall]:
    """One row and many, of whole vectors and not, divided among threads and not."""
    made = []
    for dtype, dims, ones, places_in, extremum in (
        ("f32", [5, 17], [], "s32", "maximum"), ("bf16", [2, 3, 1040], [], "s32", "minimum"),
        ("f32", [100_003], [], "s32", "maximum"), ("bf16", [1, 1], [], "s32", "maximum"),
        ("f32", [3, 70], [1, 1], "s32", "minimum"), ("f64", [60_007], [], "s64", "minimum"),
        ("f64", [3, 41], [], "s32", "maximum"), ("s32", [2, 1050], [], "s64", "minimum"),
    ):  # fmt: skip
        places = [*dims[:-1], *ones]
        described = tensors(src=(dtype, [*dims, *ones]), dst=(places_in, places)) | {"extremum": extremum}
        made.append(own("argmax", described, [Array(dtype, [*dims, *ones])], Array(places_in, places)))
    return [*made, made[0].but(extremum=None, dst_type=None)]  # as programs were saved before there was a choice


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """Numbers are compared, not rounded."""
    long = [number for number, size in enumerate(source.shape) if size != 1]
    is_last = source.shape[-1] != 1 or list(dims) == list(source.shape[:-1])
    axis = -1 if is_last or not long else long[-1]
    return source.argmin(axis) if said.get("extremum") == "minimum" else source.argmax(axis)
