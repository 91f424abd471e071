"""Attribute fuzzer, products of a sparse matrix and a dense one: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own


def _call(dtype: str, entries: int, source: list[int], rows: int, **more: int) -> WireCall:
    """All indices in one array, those of the rows first in each pair."""
    dims = {"values": [entries], "rows": [entries], "columns": [entries], "src": source, "dst": [rows, source[1]]}
    attributes: dict[str, Any] = {"type": dtype, "outside": 0, "rows_wrap": 0, "columns_wrap": 0}
    for role, sizes in dims.items():
        attributes[f"{role}_dims"] = sizes
        attributes[f"{role}_strides"] = [1] if len(sizes) == 1 else [sizes[1], 1]
    for offset, role in enumerate(("rows", "columns")):
        attributes |= {f"{role}_strides": [2], f"{role}_offset": offset, f"{role}_elements": 2 * entries}
    places = Array("s32", [entries, 2])
    operands = [Array(dtype, [entries]), places, places, Array(dtype, source)]
    return own("sparse_product", attributes | more, operands, Array(dtype, dims["dst"]))


def valid_calls() -> list[WireCall]:
    """One entry, whole vectors and a remainder, both types; columns out of range in each mode."""
    return [
        _call("f32", 1, [1, 1], 1),
        _call("f32", 50, [9, 70], 7, rows_wrap=1, columns_wrap=1, outside=1),
        _call("f64", 300, [30, 33], 20, columns_wrap=1),
        _call("f32", 5000, [40, 64], 300, rows_wrap=1, outside=1),
    ]


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """In float64, an entry after the other."""
    source = given[3].reshape(said["src_dims"]).astype(np.float64)
    found = np.zeros(said["dst_dims"])
    values = given[0].reshape(-1)[: said["values_dims"][0]].astype(np.float64)
    rows, columns = (_indices(said, role, given[n]) for n, role in ((1, "rows"), (2, "columns")))
    if said.get("rows_wrap"):
        rows = np.where(rows < 0, rows + len(found), rows)
    if said.get("columns_wrap"):
        columns = np.where(columns < 0, columns + len(source), columns)
    is_inside = (columns >= 0) & (columns < len(source))
    gathered = source[np.clip(columns, 0, len(source) - 1)]
    if said.get("outside"):
        gathered = np.where(is_inside[:, None], gathered, 0 if said["outside"] == 1 else np.nan)
    kept = (rows >= 0) & (rows < len(found))
    np.add.at(found, rows[kept], (values[:, None] * gathered)[kept])
    return [("dst", results[0].reshape(found.shape), found)]


def _indices(said: dict[str, Any], role: str, given: np.ndarray) -> np.ndarray:
    count, (stride,) = said[f"{role}_dims"][0], said[f"{role}_strides"]
    return given.reshape(-1)[said[f"{role}_offset"] :][::stride][:count].astype(np.int64)
