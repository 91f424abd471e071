"""Attribute fuzzer, group norms: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, tensors


def valid_calls() -> list[WireCall]:
    """One image and several, on one thread and on all, groups of one channel and of all; with swish and without."""
    made = []
    for dtype, dims, groups, vectors, swish in (
        ("f32", [1, 5, 6], 2, ("f32", "f32"), 0), ("f32", [2, 900, 40], 4, ("f32", "bf16"), 1),
        ("bf16", [3, 7, 33], 33, ("bf16", "f32"), 1), ("f32", [1, 1, 1], 1, ("f32", "f32"), 0),
        ("bf16", [1, 700, 70], 1, ("f32", "f32"), 0),
    ):  # fmt: skip
        described = {"groups": groups, "epsilon": 1e-3, "swish": swish}
        described |= tensors(src=(dtype, dims), dst=(dtype, dims))
        described |= {"scale_type": vectors[0], "shift_type": vectors[1]}
        operands = [Array(dtype, dims), *(Array(kind, dims[-1:]) for kind in vectors)]
        made.append(own("group_norm", described, operands, Array(dtype, dims)))
    return made


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """In float64."""
    source = placed(said, "src", given[0])
    images, positions, channels = source.shape
    of_groups = source.reshape(images, positions, said["groups"], -1)
    centred = of_groups - of_groups.mean((1, 3), keepdims=True)
    normal = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + said["epsilon"])
    scale, shift = (vector.astype(np.float64) for vector in given[1:])
    expected = normal.reshape(images, positions, channels) * scale + shift
    if said["swish"]:
        expected = expected / (1 + np.exp(-expected))
    return [("dst", placed(said, "dst", results[0]), expected)]
