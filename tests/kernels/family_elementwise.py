"""Attribute fuzzer, elementwise regions: valid calls and their reference."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import LOADED, Array, WireCall, tagged

from hlo_dispatch.vendor import registry

_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "sine": np.sin, "cosine": np.cos, "tanh": np.tanh, "atan2": np.arctan2, "multiply": np.multiply, "add": np.add,
    "compare.GT": np.greater, "select": np.where, "convert": lambda x: x, "maximum": np.maximum, "abs": np.abs,
}  # fmt: skip


def _call(program: str, result: Array, *sources: tuple[str, list[int], list[int]]) -> WireCall:
    """Sources: type, strides, and the sizes of the buffer."""
    described: dict[str, Any] = {"sources": len(sources), "program": program}
    dense = [int(np.prod(result.dims[number + 1 :])) for number in range(len(result.dims))]
    described |= {"dst_type": result.type, "dst_dims": result.dims, "dst_strides": dense}
    for number, (kind, strides, _) in enumerate(sources):
        role = f"src_{number}" if number else "src"
        described |= {f"{role}_type": kind, f"{role}_dims": result.dims, f"{role}_strides": strides}
    common = {"abi": registry.abi(), "library": LOADED, "scratch": 0}
    attributes = {name: tagged(value) for name, value in (common | described).items()}
    operands = [Array(kind, buffer) for kind, _, buffer in sources]
    return WireCall("svml.elementwise", attributes, operands, [result, Array("u8", [0])])


def valid_calls() -> list[WireCall]:
    """Whole vectors and not, several blocks, rows, columns and single numbers that repeat, other orders, all types."""
    return [
        _call("f32 sine 0", Array("f32", [37]), ("f32", [1], [37])),
        _call("f64 atan2 0 1; f64 cosine 2", Array("f64", [5003]), ("f64", [1], [5003]), ("f64", [0], [1])),
        _call(
            "f32 constant 40000000; f32 multiply 0 3; f32 add 4 1; f32 sine 5; pred compare.GT 0 2; f32 select 7 6 1",
            Array("f32", [9, 33]), ("f32", [33, 1], [9, 33]), ("f32", [0, 1], [33]), ("f32", [1, 0], [9]),
        ),
        _call(
            "f64 convert 0; f64 select 2 3 1; f64 tanh 4", Array("f64", [16, 8]),
            ("f32", [1, 16], [8, 16]), ("f64", [0, 0], [1]), ("pred", [8, 1], [16, 8]),
        ),
        _call("f32 convert 0; f32 sine 1; bf16 convert 2", Array("bf16", [70]), ("bf16", [1], [70])),
    ]  # fmt: skip


def pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> list[Any]:
    """What was found and what was expected, but for roundings to half precision."""
    values = []
    for number in range(said["sources"]):
        role = f"src_{number}" if number else "src"
        values.append(placed(said, role, given[number], said.get(f"{role}_offset", 0)))
    for step in said["program"].split(";"):
        kind, opcode, *operands = step.split()
        if opcode == "constant":
            letter = "f" if kind == "f32" else "d"
            values.append(np.float64(struct.unpack(f">{letter}", bytes.fromhex(operands[0]))[0]))
        else:
            arguments = [values[int(operand)] for operand in operands]
            if opcode == "select":
                arguments[0] = arguments[0] != 0
            values.append(np.asarray(_FUNCTIONS[opcode](*arguments), np.float64))
    found = placed(said, "dst", results[0])
    if said["dst_type"] in ("bf16", "f16"):
        return [("dst", found * 1e-3, values[-1] * 1e-3)]
    return [("dst", found, np.broadcast_to(values[-1], found.shape))]
