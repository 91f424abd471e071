"""Attribute fuzzer, sorts: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import LOADED, Array, WireCall, strides, tagged


def valid_calls() -> list[WireCall]:
    """With what goes along with the keys and without, one row and many, short and long; and the largest of rows."""
    made = []
    for dims in ([5, 17], [20, 33], [2, 3, 1040], [70_000], [1, 1]):
        for keys, along, order in (
            ("f32", "s32", {}),
            ("s32", "f32", {"descending": 1, "total_order": 1}),
            ("f64", "f64", {}),
        ):
            for name, roles in (("sort", ("keys",)), ("sort_with_places", ("keys", "places"))):
                described = {"type": keys} | order | ({"places_type": along} if len(roles) > 1 else {})
                for role in roles:
                    described |= _rows(role, dims) | _rows(f"sorted_{role}", dims)
                arrays = [Array(dtype, dims) for dtype in (keys, along)[: len(roles)]]
                made.append(_call(name, described, arrays, arrays))
        for count in {1, max(1, dims[-1] // 20), dims[-1]}:
            found = [*dims[:-1], count]
            for kind in ("f32", "f64"):
                described = {"type": kind} | _rows("values", dims) | _rows("largest", found) | _rows("places", found)
                described |= {"skipped": dims[-1] // 30} if dims[-1] // 30 + count <= dims[-1] else {}
                made.append(_call("top_k", described, [Array(kind, dims)], [Array(kind, found), Array("s32", found)]))
    return made


def _rows(role: str, dims: list[int]) -> dict[str, Any]:
    return {f"{role}_dims": dims, f"{role}_strides": strides(dims)}


def _call(name: str, described: dict[str, Any], operands: list[Array], results: list[Array]) -> WireCall:
    typed = {key: tagged(value) for key, value in ({"abi": 1, "library": LOADED} | described).items()}
    return WireCall(f"own.{name}", typed, operands, results)


def pairs(
    said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """By NumPy's stable sort."""
    roles = ("keys", "places")[: len(given)]
    keys = placed(said, "keys", given[0])
    order = np.argsort(-keys if said.get("descending") else keys, -1, kind="stable")
    found = []
    for role, before, after in zip(roles, given, results, strict=True):
        expected = np.take_along_axis(placed(said, role, before), order, -1)
        found.append((role, placed(said, f"sorted_{role}", after), expected))
    return found


def largest(
    said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Likewise."""
    values = placed(said, "values", given[0])
    skipped = said.get("skipped", 0)
    places = np.argsort(-values, -1, kind="stable")[..., skipped : skipped + said["largest_dims"][-1]]
    return [
        ("largest", placed(said, "largest", results[0]), np.take_along_axis(values, places, -1)),
        ("places", placed(said, "places", results[1]), places),
    ]
