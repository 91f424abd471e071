"""Attribute fuzzer, weight-only quantized matmul: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, strides, tensors

from dynamic_quantization import in_eight_bits
from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry

PANEL, STEP = 64, 4
"""Columns of a panel of prepacked weights, and rows of a step (kernels/quantized_matmul/packed_layout.h)."""


def valid_calls() -> list[WireCall]:
    """Both orders of the weights, all types, rows in a batch, what may follow, and parts of buffers."""
    made: list[WireCall] = []
    for dtype, kind, source, weights, result, by_column in (
        ("f32", "s8", [1, 70], [70, 83], [1, 83], False), ("bf16", "s8", [5, 33], [33, 18], [5, 18], True),
        ("f16", "s8", [1, 3, 20], [1, 20, 64], [1, 3, 64], False), ("f32", "f32", [1, 21], [21, 70], [1, 70], True),
        ("bf16", "bf16", [3, 40], [40, 65], [3, 65], False), ("f32", "s4", [2, 30], [30, 66], [2, 66], False),
    ):  # fmt: skip
        described = tensors(src=(dtype, source), weights=(kind, weights), dst=(dtype, result))
        described["weights_strides"] = strides(weights, by_column=by_column)
        arrays = [Array(dtype, source), Array(kind, weights)]
        made.append(own("narrow_product", described, arrays, Array(dtype, result)))
        vector = [*([1] * (len(result) - 1)), result[-1]]
        scale = {"kind": "binary", "algorithm": "mul", "type": dtype, "dims": vector, "strides": strides(vector)}
        residual = {"kind": "binary", "algorithm": "add", "type": "f32", "dims": result, "strides": strides(result)}
        relu = {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}
        described = described | {"bias_type": dtype, "post_op_0": scale, "post_op_1": residual, "post_op_2": relu}
        others = [Array(dtype, [result[-1]]), Array(dtype, vector), Array("f32", result)]
        made.append(own("narrow_product", described, [*arrays, *others], Array(dtype, result)))
    scaled = tensors(src=("f32", [2, 64]), weights=("s4", [64, 36]), scales=("bf16", [4, 36]), dst=("f32", [2, 36]))
    arrays = [Array("f32", [2, 64]), Array("s4", [64, 36]), Array("bf16", [4, 36])]
    made.append(own("narrow_product", scaled, arrays, Array("f32", [2, 36])))
    shifted = tensors(src=("f32", [2, 64]), weights=("s8", [64, 36]), zeros=("f32", [4, 36]), dst=("f32", [2, 36]))
    arrays = [Array("f32", [2, 64]), Array("s8", [64, 36]), Array("f32", [4, 36])]
    made.append(own("narrow_product", shifted, arrays, Array("f32", [2, 36])))
    halves = tensors(src=("f32", [2, 64]), weights=("u8", [64, 36]), dst=("f32", [2, 36]))
    halves |= {"weights_block": 32, "weights_zero": 8.0, "weights_strides": [1, 64]}
    made.append(own("narrow_product", halves, [Array("f32", [2, 64]), Array("u8", [32, 36])], Array("f32", [2, 36])))
    part = tensors(src=("f32", [2, 16]), weights=("s8", [16, 24]), dst=("f32", [2, 24]))
    part |= {"src_offset": 3, "src_elements": 40, "weights_offset": 5, "weights_elements": 700}
    part["weights_strides"] = [40, 1]
    made.append(own("narrow_product", part, [Array("f32", [40]), Array("s8", [700])], Array("f32", [2, 24])))
    part = tensors(src=("f32", [2, 64]), weights=("s8", [64, 36]), scales=("f32", [4, 36]), dst=("f32", [2, 36]))
    part |= {"scales_offset": 36, "scales_elements": 216}
    arrays = [Array("f32", [2, 64]), Array("s8", [64, 36]), Array("f32", [216])]
    made.append(own("narrow_product", part, arrays, Array("f32", [2, 36])))
    rounded = tensors(src=("bf16", [14, 64]), weights=("s4", [64, 36]), scales=("f32", [4, 36]), dst=("f32", [14, 36]))
    arrays = [Array("bf16", [14, 64]), Array("s4", [64, 36]), Array("f32", [4, 36])]
    made.append(own("narrow_product", rounded | {"src_group": 8}, arrays, Array("f32", [14, 36])))
    return made + _prepacked("s8", 3, 21, 70) + _prepacked("s4", 1, 40, 66)


def _prepacked(kind: str, rows: int, depth: int, columns: int) -> list[WireCall]:
    """The call that packs, and, where weights are packed, one that reads them."""
    said = tensors(src=("f32", [rows, depth]), weights=(kind, [depth, columns]), dst=("f32", [rows, columns]))
    weights, target = Array(kind, [depth, columns]), "own.narrow_product"
    panels, padded = -(-columns // PANEL), -(-depth // 8) * 8
    size = panels * PANEL * padded // (2 if kind == "s4" else 1)
    said |= {"weights_format": "packed", "packed_bytes": size}
    said["packed_layout"] = f"{kind} {panels} panels of {padded}x{PANEL} in steps of {STEP}"
    made = [own("pack", said | {"target": target}, [weights], Array("u8", [size]))]
    planned = kernels.plan(target, {"abi": registry.abi(), "library": "", "scratch": 0} | said)
    if not isinstance(planned, Refusal) and planned.packed_bytes:
        operands = [Array("f32", [rows, depth]), Array("u8", [size])]
        made.append(own("narrow_product", said, operands, Array("f32", [rows, columns])))
    return made


def pack_pairs(said: dict[str, Any], given: list[np.ndarray], results: list[np.ndarray], placed: Any) -> list[Any]:
    """What was written and what the layout says."""
    if "packed_layout" not in said:
        return []
    weights = placed(said, "weights", given[0], said.get("weights_offset", 0))
    weights = weights.reshape(weights.shape[-2:]).astype(np.int64)
    is_narrow = said["weights_type"] == "s4"
    middle = 8 if is_narrow else 128
    padding = [(0, -size % grain) for size, grain in zip(weights.shape, (8, PANEL), strict=True)]
    padded = np.pad(weights, padding) + middle
    steps = padded.reshape(len(padded) // STEP, STEP, -1, PANEL).transpose(2, 0, 3, 1)
    packed = steps[:, ::2] | steps[:, 1::2] << 4 if is_narrow else steps
    return [("packed", results[0].astype(np.float64), packed.reshape(-1).astype(np.float64))]


def unpacked(said: dict[str, Any], packed: np.ndarray) -> np.ndarray:
    """The weights that a product reads."""
    depth, columns = said["weights_dims"][-2:]
    steps = packed.reshape(-(-columns // PANEL), -1, PANEL, STEP).astype(np.int64)
    middle = 128
    if said["weights_type"] == "s4":
        steps = np.stack([steps & 15, steps >> 4], 2).reshape(len(steps), -1, PANEL, STEP)
        middle = 8
    whole = steps.transpose(1, 3, 0, 2).reshape(-1, len(steps) * PANEL) - middle
    return whole[:depth, :columns].reshape(said["weights_dims"]).astype(np.float64)


def formula(said: dict[str, Any], source: np.ndarray, weights: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    return (in_eight_bits(source, said["src_group"]) if "src_group" in said else source) @ weights


def numbers_of_bytes(block: int, given: np.ndarray) -> np.ndarray:
    """Both numbers of four bits of each byte, in the order of what is summed up."""
    blocks = given.reshape(-1, 1, block // 2)
    return np.concatenate([blocks & 15, blocks >> 4], 1).reshape(-1)
