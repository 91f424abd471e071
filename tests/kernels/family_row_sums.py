"""Attribute fuzzer, sums and norms of rows: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors


def valid_calls() -> list[WireCall]:
    """One row and many, of whole vectors and not, divided among threads and not."""
    made = []
    for dtype, dims, sums_in, of, root in (
        ("f32", [5, 17], "f32", "values", 0), ("bf16", [2, 3, 1040], "f32", "squares", 1),
        ("f32", [100_003], "f32", "values", 0), ("bf16", [1, 1], "bf16", "values", 0),
        ("f64", [3, 70], "f64", "squares", 0), ("f64", [2, 60_007], "f64", "squares", 1),
    ):  # fmt: skip
        described = tensors(src=(dtype, dims), dst=(sums_in, dims[:-1])) | {"of": of, "root": root}
        made.append(own("row_sums", described, [Array(dtype, dims)], Array(sums_in, dims[:-1])))
    return made


def formula(said: dict[str, Any], source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    sums = (source**2 if said["of"] == "squares" else source).sum(-1)
    return np.sqrt(sums) if said["root"] else sums
