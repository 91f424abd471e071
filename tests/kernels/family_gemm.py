"""Attribute fuzzer, oneMKL's gemm and its prepacking: valid calls and their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wire_calls import LOADED, Array, WireCall, strides, tagged, tensors

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.vendor import kernels, registry
from processor import lacks_onemkl

Described = dict[str, Any]


def _described(source: list[int], weights: list[int], result: list[int]) -> Described:
    return tensors(src=("f32", source), weights=("f32", weights), dst=("f32", result))


def _call(name: str, attributes: Described, operands: list[Array], result: Array) -> WireCall:
    written = {"abi": 1, "library": LOADED, "scratch": 0} | attributes
    typed = {key: tagged(value) for key, value in written.items()}
    return WireCall(f"onemkl.{name}", typed, operands, [result, Array("u8", [0])])


def _products() -> list[WireCall]:
    made = []
    for source, weights, result in (([5, 16], [16, 8], [5, 8]), ([2, 3, 7], [1, 7, 9], [2, 3, 9])):
        residual = {"kind": "binary", "algorithm": "add", "type": "f32", "dims": result, "strides": strides(result)}
        relu = {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}
        attributes = _described(source, weights, result)
        attributes |= {"bias_type": "f32", "post_op_0": relu, "post_op_1": residual}
        operands = [Array("f32", dims) for dims in (source, weights, [result[-1]], result)]
        made.append(_call("gemm", attributes, operands, Array("f32", result)))
    by_column = _described([6, 4], [4, 10], [6, 10])
    by_column |= {f"{role}_strides": [1, rows] for role, rows in (("src", 6), ("weights", 4), ("dst", 6))}
    made.append(_call("gemm", by_column, [Array("f32", [24]), Array("f32", [40])], Array("f32", [60])))
    part = _described([5, 16], [16, 8], [5, 8]) | {"src_offset": 3, "src_elements": 90}
    made.append(_call("gemm", part, [Array("f32", [90]), Array("f32", [16, 8])], Array("f32", [5, 8])))
    return made


def _packings() -> list[WireCall]:
    """Of weights so large that they are worth what memory oneMKL wants besides, which depends on the processor."""
    return [_packing(rows, k, n) for rows, k, n in ((64, 1100, 1301), (96, 1301, 1201))]


def _packing(rows: int, k: int, n: int) -> WireCall:
    library = kernels.library("onemkl.gemm")
    assert not isinstance(library, Unavailable)
    for columns in (n, 2 * n, 4 * n):
        attributes = _described([rows, k], [k, columns], [rows, columns]) | {"weights_format": "packed"}
        question = {"abi": registry.abi(), "library": library.version, "scratch": 0} | attributes
        planned = kernels.plan("onemkl.gemm", question)
        assert not isinstance(planned, Refusal), planned
        if planned.packed_bytes:
            break
    assert planned.packed_bytes, "they are worth the memory"
    said = {"packed_bytes": planned.packed_bytes, "packed_layout": planned.packed_layout, "target": "onemkl.gemm"}
    return _call("pack", attributes | said, [Array("f32", [k, columns])], Array("u8", [planned.packed_bytes]))


def valid_calls() -> list[WireCall]:
    """Products with all that may follow, by row and by column; and the packing of two kinds of weights."""
    return [] if lacks_onemkl() else [*_products(), *_packings()]


def formula(said: Described, source: np.ndarray, weights: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """In float64."""
    return source @ weights


def pack_pairs(said: Described, given: list[np.ndarray], placed: Callable[..., np.ndarray]) -> list[Any]:
    """Nobody but oneMKL can read what it wrote; the weights at least have to be where they are said to be."""
    placed(said, "weights", given[0], said.get("weights_offset", 0))
    return []
