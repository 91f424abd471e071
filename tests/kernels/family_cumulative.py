"""Attribute fuzzer, cumulative sums and their like: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors

FUNCTIONS = {
    "sum": np.cumsum,
    "product": np.cumprod,
    "maximum": np.maximum.accumulate,
    "minimum": np.minimum.accumulate,
    "logsumexp": np.logaddexp.accumulate,
}


def valid_calls() -> list[WireCall]:
    """Of lines behind one another and side by side, divided among threads and not, in both directions."""
    made = []
    cases = (("f32", [5, 17, 1], 0), ("f64", [2, 33, 35], 1), ("s32", [1, 1, 1], 0), ("f32", [1, 300_001, 1], 1))
    for name in FUNCTIONS:
        for dtype, dims, reversed_ in cases:
            if name == "logsumexp" and (dtype == "s32" or dims[1] > 1000):
                continue
            attributes = tensors(src=(dtype, dims), dst=(dtype, dims))
            del attributes["src_type"], attributes["dst_type"]
            attributes |= {"type": dtype, "reversed": reversed_}
            made.append(own(f"cumulative_{name}", attributes, [Array(dtype, dims)], Array(dtype, dims)))
    return made


def pairs(
    name: str, said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """In float64, or with integers that wrap around."""
    source = placed(said, "src", given[0])
    wide = source if source.dtype.kind == "i" else source.astype(np.float64)
    ahead = np.flip(wide, 1) if said.get("reversed") else wide
    with np.errstate(all="ignore"):
        found = FUNCTIONS[name](ahead, axis=1)
    expected = np.flip(found, 1) if said.get("reversed") else found
    return [("dst", placed(said, "dst", results[0]), expected.astype(wide.dtype))]
