"""Attribute fuzzer, counts and searches in sorted arrays: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, strides


def _search(dtype: str, size: int, dims: list[int], **more: int) -> WireCall:
    described: dict[str, Any] = {"type": dtype, "right": 0, "wide": 0, "steps": size.bit_length()} | more
    for role, sizes in {"sorted": [size], "src": dims, "dst": dims}.items():
        described |= {f"{role}_dims": sizes, f"{role}_strides": strides(sizes)}
    places = Array("u64" if described["wide"] else "u32", dims)
    return own("searchsorted", described, [Array(dtype, [size]), Array(dtype, dims)], places)


def _count(dtype: str, entries: int, size: int, stride: int = 1, **more: int) -> WireCall:
    described = {"type": dtype, "below": 0, "indices_offset": 0, "indices_elements": stride * entries}
    described |= {"indices_dims": [entries], "indices_strides": [stride], "dst_dims": [size], "dst_strides": [1]}
    return own("bincount", described | more, [Array("s32", [entries, stride])], Array(dtype, [size]))


def valid_calls() -> list[WireCall]:
    """Few numbers and many, on one thread and on all; arrays in no order, too short or too long bisections."""
    return [
        _search("f32", 1, [1]),
        _search("f32", 7, [5, 9], right=1),
        _search("f64", 33, [700], wide=1),
        _search("f32", 100, [40_000], right=1, wide=1),
        _search("f64", 5, [33], steps=0),
        _count("f32", 1, 1),
        _count("s32", 70_000, 40, below=1),
        _count("f64", 500, 3000, stride=3, indices_offset=2),
        _count("f32", 5000, 7, below=2),
    ]


def places(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """By bisection, as XLA's loop does it."""
    numbers, wanted = given[0].reshape(-1), given[1].reshape(-1)
    low, high = np.zeros(wanted.shape, np.int64), np.full(wanted.shape, numbers.size)
    for _ in range(said["steps"]):
        middle = low + (high - low) // 2
        found = numbers[middle]
        if said["right"]:
            is_left = (wanted < found) | (np.isnan(found) & ~np.isnan(wanted))
        else:
            is_left = (wanted <= found) | np.isnan(found)
        low, high = np.where(is_left, low, middle), np.where(is_left, middle, high)
    return [("dst", results[0].reshape(-1), high)]


def counts(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """In int64."""
    entries, (stride,) = said["indices_dims"][0], said["indices_strides"]
    indices = given[0].reshape(-1)[said["indices_offset"] :][::stride][:entries].astype(np.int64)
    size = said["dst_dims"][0]
    if said["below"]:
        indices = np.where(indices < 0, indices + size if said["below"] == 1 else 0, indices)
    kept = indices[(indices >= 0) & (indices < size)]
    return [("dst", results[0].reshape(-1), np.bincount(kept, minlength=size))]
