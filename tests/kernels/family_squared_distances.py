"""Attribute fuzzer, squared distances: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors


def valid_calls() -> list[WireCall]:
    """One point and many, of whole panels and not, coordinates summed up at once and not, on one thread and on all."""
    made = []
    for dtype, m, n, k in (("f32", 5, 7, 3), ("f64", 70, 33, 65), ("f32", 130, 64, 129), ("f64", 1, 1, 1)):
        described = tensors(src=(dtype, [m, k]), other=(dtype, [n, k]), dst=(dtype, [m, n]))
        operands = [Array(dtype, [m, k]), Array(dtype, [n, k])]
        made.append(own("squared_distances", described, operands, Array(dtype, [m, n])))
    return made


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """In float64."""
    source, other = placed(said, "src", given[0]), placed(said, "other", given[1])
    expected = ((source[:, None] - other[None]) ** 2).sum(-1)
    return [("dst", placed(said, "dst", results[0]), expected)]
