"""Attribute fuzzer, weight-only quantized matmul: valid calls and their reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from wire_calls import Array, WireCall, own, strides, tensors

from dynamic_quantization import in_eight_bits


def valid_calls() -> list[WireCall]:
    """Both orders of the weights, all types, rows in a batch, what may follow, and parts of buffers."""
    made = []
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
    return made


def formula(said: dict[str, Any], source: np.ndarray, weights: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    return (in_eight_bits(source, said["src_group"]) if "src_group" in said else source) @ weights


def numbers_of_bytes(block: int, given: np.ndarray) -> np.ndarray:
    """Both numbers of four bits of each byte, in the order of what is summed up."""
    blocks = given.reshape(-1, 1, block // 2)
    return np.concatenate([blocks & 15, blocks >> 4], 1).reshape(-1)
