"""Attribute fuzzer, sorts: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import LOADED, Array, WireCall, strides, tagged


def valid_calls() -> list[WireCall]:
    """With what goes along with the keys and without, one row and many, short and long."""
    made = []
    for name, roles in (("sort", ("keys",)), ("sort_with_places", ("keys", "places"))):
        for dims in ([5, 17], [2, 3, 1040], [4000], [1, 1]):
            described = {"type": "f32"}
            for role in roles:
                for array in (role, f"sorted_{role}"):
                    described |= {f"{array}_dims": dims, f"{array}_strides": strides(dims)}
            arrays = [Array(dtype, dims) for dtype in ("f32", "s32")[: len(roles)]]
            typed = {key: tagged(value) for key, value in ({"abi": 1, "library": LOADED} | described).items()}
            made.append(WireCall(f"own.{name}", typed, arrays, arrays))
    return made


def pairs(
    said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """By NumPy's stable sort."""
    roles = ("keys", "places")[: len(given)]
    order = np.argsort(placed(said, "keys", given[0]), -1, kind="stable")
    found = []
    for role, before, after in zip(roles, given, results, strict=True):
        expected = np.take_along_axis(placed(said, role, before), order, -1)
        found.append((role, placed(said, f"sorted_{role}", after), expected))
    return found
