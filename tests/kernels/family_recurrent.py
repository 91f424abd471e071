"""Attribute fuzzer, recurrent layers: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import LOADED, Array, WireCall, tagged, tensors

_GATES = {"lstm": 4, "gru": 3, "gru_complement": 3, "gru_reset_first": 3, "tanh": 1, "relu": 1}


def valid_calls() -> list[WireCall]:
    """All cells, both directions and types, with and without a product of the input and biases."""
    made = []
    for cell, dtype, (steps, rows, inputs, units), has_bias, reversed_ in (
        ("lstm", "f32", (3, 2, 5, 17), True, 0), ("lstm", "f32", (2, 1, 0, 16), False, 1),
        ("gru", "f32", (4, 3, 7, 9), True, 1), ("gru_complement", "bf16", (2, 2, 4, 33), False, 0),
        ("gru_reset_first", "f32", (3, 2, 5, 17), True, 0), ("gru_reset_first", "bf16", (2, 3, 0, 32), False, 1),
        ("tanh", "bf16", (3, 2, 0, 8), True, 0), ("relu", "f32", (2, 4, 3, 5), True, 1),
    ):  # fmt: skip
        gates, biases = _GATES[cell], 4 if cell in ("gru", "gru_complement") else _GATES[cell]
        columns, resets_first = gates * units, cell == "gru_reset_first"
        source = [steps, rows, inputs or columns]
        named = {"src": (dtype, source), "weights": (dtype, [units, columns - units if resets_first else columns])}
        named |= {"input_weights": (dtype, [inputs, columns])} if inputs else {}
        named |= {"candidate_weights": (dtype, [units, units])} if resets_first else {}
        named |= {"bias": ("f32", [biases, units])} if has_bias else {}
        named |= {"state": (dtype, [rows, units])}
        named |= {"cell_state": (dtype, [rows, units])} if cell == "lstm" else {}
        operands = [Array(*array) for array in named.values()]
        attributes = tensors(**named, dst=(dtype, [steps, rows, units]))
        blocks = list(range(gates))
        hidden = blocks[: 2 if resets_first else gates][::-1]
        attributes |= {"cell": cell, "reversed": reversed_, "hidden_blocks": hidden, "input_blocks": blocks}
        typed = {
            key: tagged(value) for key, value in ({"abi": 1, "library": LOADED, "scratch": 0} | attributes).items()
        }
        states = [Array(dtype, [rows, units])] * (2 if cell == "lstm" else 1)
        results = [Array(dtype, [steps, rows, units]), *states, Array("u8", [0])]
        made.append(WireCall("onednn.recurrent", typed, operands, results))
    return made


def pairs(
    said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """In float64; nothing where that is not finite."""
    operands, arrays = list(given), dict[str, np.ndarray]()
    for name in ("src", "weights", "input_weights", "candidate_weights", "bias", "state", "cell_state"):
        if f"{name}_type" in said and not (name == "cell_state" and said["cell"] != "lstm"):
            arrays[name] = placed(said, name, operands.pop(0), said.get(f"{name}_offset", 0))
    with np.errstate(all="ignore"):
        every, state = reference(said, **arrays)
    if not (np.isfinite(every).all() and np.isfinite(state).all()):
        return []
    return [("dst", placed(said, "dst", results[0]), every), ("state", placed(said, "state", results[1]), state)]


def reference(
    said: dict[str, Any],
    src: np.ndarray,
    weights: np.ndarray,
    state: np.ndarray,
    input_weights: np.ndarray | None = None,
    candidate_weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    cell_state: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """All states and the last one."""
    x = src if input_weights is None else src @ input_weights
    units = state.shape[-1]
    every, memory = np.zeros((*src.shape[:2], units)), cell_state
    bias = np.zeros((4, units)) if bias is None else bias
    steps = range(len(src))
    for step in reversed(steps) if said["reversed"] else steps:
        u = state @ weights
        inputs = [x[step][:, b * units : (b + 1) * units] for b in said["input_blocks"]]
        hidden = [u[:, b * units : (b + 1) * units] for b in said["hidden_blocks"]]
        if candidate_weights is not None:
            hidden.append((_sigmoid(inputs[0] + hidden[0] + bias[0]) * state) @ candidate_weights)
        state, memory = _cell(said["cell"], inputs, hidden, bias, state, memory)
        every[step] = state
    return every, state


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _cell(
    cell: str,
    inputs: list[np.ndarray],
    hidden: list[np.ndarray],
    bias: np.ndarray,
    state: np.ndarray,
    memory: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray | None]:
    sums = [x + u + b for x, u, b in zip(inputs, hidden, bias, strict=False)]
    if cell == "lstm":
        i, f, g, o = sums
        memory = _sigmoid(f) * memory + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(memory), memory
    if cell in ("tanh", "relu"):
        return (np.tanh(sums[0]) if cell == "tanh" else np.maximum(sums[0], 0)), None
    update = _sigmoid(-sums[1]) if cell == "gru_complement" else _sigmoid(sums[1])
    if cell == "gru_reset_first":
        return update * state + (1 - update) * np.tanh(sums[2]), None
    proposed = np.tanh(inputs[2] + bias[2] + _sigmoid(sums[0]) * (hidden[2] + bias[3]))
    return update * state + (1 - update) * proposed, None
