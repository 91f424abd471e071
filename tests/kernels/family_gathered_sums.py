"""Attribute fuzzer, sums of gathered rows: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, strides


def _call(dtype: str, sums: int, count: int, source: list[int], dst_type: str = "", **more: Any) -> WireCall:
    dims = {"indices": [sums, count], "src": source, "dst": [sums, source[1]]}
    described: dict[str, Any] = {"type": dtype, "dst_type": dst_type or dtype, "mean": 0, "wrap": 0, "outside": 0}
    described |= {"indices_offset": 0, "indices_elements": sums * count}
    for role, sizes in dims.items():
        described |= {f"{role}_dims": sizes, f"{role}_strides": strides(sizes)}
    described |= more
    operands = [Array("s32", [described["indices_elements"]]), Array(dtype, source)]
    return own("gathered_sums", described, operands, Array(described["dst_type"], dims["dst"]))


def valid_calls() -> list[WireCall]:
    """One number, whole vectors and remainders, on one thread and on all; sums of columns of indices, and a part of
    them; rows outside in each mode.
    """
    return [
        _call("f32", 1, 1, [1, 1], mean=1),
        _call("f32", 7, 5, [9, 70], wrap=1, outside=1),
        _call("f64", 30, 64, [40, 133], mean=1, outside=2),
        _call("bf16", 11, 3, [8, 300], "f32", wrap=1),
        _call("bf16", 400, 50, [30, 37], mean=1, indices_strides=[1, 400]),
        _call("f32", 20, 300, [50, 17], indices_strides=[600, 2], indices_offset=1, indices_elements=12_000),
    ]


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """In float64, by rows that are outside as well."""
    source = given[1].reshape(said["src_dims"]).astype(np.float64)
    (sums, count), (first, second) = said["indices_dims"], said["indices_strides"]
    places = said["indices_offset"] + first * np.arange(sums)[:, None] + second * np.arange(count)
    indices = given[0].reshape(-1)[places].astype(np.int64)
    if said["wrap"]:
        indices = np.where(indices < 0, indices + len(source), indices)
    is_inside = (indices >= 0) & (indices < len(source))
    rows = source[np.clip(indices, 0, len(source) - 1)]
    if said["outside"]:
        rows = np.where(is_inside[..., None], rows, 0 if said["outside"] == 1 else np.nan)
    expected = rows.mean(1) if said["mean"] else rows.sum(1)
    found = results[0].astype(np.float64).reshape(expected.shape)
    numbers = [np.where(np.isnan(expected), 0, each) for each in (found, expected)]
    return [("NaN", np.isnan(found).astype(float), np.isnan(expected).astype(float)), ("dst", *numbers)]
