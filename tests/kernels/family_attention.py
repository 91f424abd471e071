"""Attribute fuzzer, attention: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attention_calls import stepped
from wire_calls import LOADED, Array, WireCall, strides, tagged, tensors

_OPERANDS = ("query", "key", "value")


def _call(attributes: dict[str, Any], operands: list[Array], result: Array) -> WireCall:
    written = {"abi": 1, "library": LOADED, "scratch": 0} | attributes
    typed = {key: tagged(value) for key, value in written.items()}
    return WireCall("own.attention", typed, operands, [result, Array("u8", [0])])


def valid_calls() -> list[WireCall]:
    """All steps, some types, parts of buffers, strides of 0."""
    made = []
    for dtype, batch, (queries, keys, depth, width) in (
        ("f32", [2, 3], (5, 9, 4, 7)), ("bf16", [2], (17, 33, 8, 16)), ("f16", [], (3, 4, 5, 6)),
    ):  # fmt: skip
        dims = [[*batch, queries, depth], [*batch, keys, depth], [*batch, keys, width], [*batch, queries, width]]
        scores = [*batch, queries, keys]
        bias = {"kind": "add", "type": "f32", "dims": scores, "strides": strides(scores)}
        mask = {"kind": "select", "type": "pred", "dims": scores, "strides": [0] * (len(scores) - 1) + [1]}
        steps = {
            "score_0": {"kind": "scale", "value": 0.125}, "score_1": bias, "score_2": mask | {"value": -1e9},
            "score_3": {"kind": "softcap", "value": 30.0}, "score_4": {"kind": "causal", "offset": 2, "value": -1e9},
            "score_5": {"kind": "window", "before": 4, "value": -1e9},
        }  # fmt: skip
        names = (*_OPERANDS, "dst")
        described = tensors(**{name: (dtype, size) for name, size in zip(names, dims, strict=True)})
        arrays = [Array(dtype, size) for size in dims]
        made.append(_call(described, arrays[:3], arrays[3]))
        made.append(_call(described | steps, [*arrays[:3], Array("f32", scores), Array("pred", [keys])], arrays[3]))
    # One product has made all three, and one head's keys serve two.
    shapes = tensors(query=("f32", [2, 6, 4]), key=("f32", [2, 6, 4]), value=("f32", [2, 6, 4]), dst=("f32", [2, 6, 4]))
    for number, name in enumerate(_OPERANDS):
        shapes |= {f"{name}_strides": [4 if number == 0 else 0, 16, 1], f"{name}_elements": 96}
        shapes |= {f"{name}_offset": (0, 8, 12)[number]}
    made.append(_call(shapes, [Array("f32", [6, 16])] * 3, Array("f32", [2, 6, 4])))
    return made


def pairs(
    said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """In float64; nothing where that is not finite."""
    operands = list(given)
    query, key, value = (placed(said, name, operands.pop(0), said.get(f"{name}_offset", 0)) for name in _OPERANDS)
    steps, number = [], 0
    while (step := said.get(f"score_{number}")) is not None:
        operand = None
        if "dims" in step:
            operand = placed({f"x_{name}": entry for name, entry in step.items()}, "x", operands.pop(0),
                             step.get("offset", 0))  # fmt: skip
        steps.append((step["kind"], step, operand))
        number += 1
    with np.errstate(all="ignore"):
        scores = stepped(query @ np.swapaxes(key, -1, -2), steps)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        expected = (powers / powers.sum(-1, keepdims=True)) @ value
    # In f32 other numbers overflow than in f64.
    if not (np.isfinite(expected).all() and np.abs(scores[np.isfinite(scores)]).max(initial=0) < 1e37):
        return []
    return [("dst", placed(said, "dst", results[0]), expected)]
