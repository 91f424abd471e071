"""Reference semantics of oneDNN's calls, as attribute_meaning.py: sums over windows, one position at a time."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import family_attention
import family_concat
import family_counting
import family_cumulative
import family_gathered_sums
import family_gemm
import family_group_norm
import family_narrow_product
import family_pack
import family_sequence
import family_sort
import family_sparse_product
import family_squared_distances
import family_threefry2x32
import numpy as np

Said = dict[str, Any]
Pairs = list[tuple[str, np.ndarray, np.ndarray]]
_ELTWISE: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "relu": lambda x, alpha, beta: np.where(x > 0, x, alpha * x),
    "linear": lambda x, alpha, beta: alpha * x + beta,
    "tanh": lambda x, alpha, beta: np.tanh(x),
    "abs": lambda x, alpha, beta: np.abs(x),
    "square": lambda x, alpha, beta: x * x,
}
_PAIRS: dict[str, Callable] = {
    "onednn.concat": family_concat.pairs, "onednn.pack": family_pack.pairs, "own.attention": family_attention.pairs,
    "own.bincount": family_counting.counts, "own.gathered_sums": family_gathered_sums.pairs,
    "own.group_norm": family_group_norm.pairs,
    "own.pack": family_narrow_product.pack_pairs, "own.searchsorted": family_counting.places,
    "own.sort": family_sort.pairs,
    "own.sort_with_places": family_sort.pairs, "own.sparse_product": family_sparse_product.pairs,
    "own.squared_distances": family_squared_distances.pairs, "own.top_k": family_sort.largest,
    "own.threefry2x32": family_threefry2x32.pairs,
} | {
    f"own.cumulative_{name}": partial(family_cumulative.pairs, name) for name in family_cumulative.FUNCTIONS
}  # fmt: skip
_BINARY = {"add": np.add, "mul": np.multiply, "sub": np.subtract, "max": np.maximum, "min": np.minimum}


def pairs(name: str, said: Said, given: list[np.ndarray], results: list[np.ndarray], placed: Callable) -> Pairs:
    """What was found and what was expected; nothing where a post-op is none of the few known here or has no bounds."""
    if name == "onednn.sequence":
        return family_sequence.pairs(
            said, given, results, lambda kernel, member, read, made: pairs(kernel, member, read, made, placed)
        )
    if name in _PAIRS:
        return _PAIRS[name](said, given, results, placed)
    if name == "onemkl.pack":
        return family_gemm.pack_pairs(said, given, placed)
    first, second, last = "src", "weights" if "weights_dims" in said else None, "dst"
    if name == "onednn.weights_gradient":
        first, second, last = "src", "diff_dst", "diff_weights"
    operands = list(given)
    source = placed(said, first, operands.pop(0), said.get(f"{first}_offset", 0))
    weights = None if second is None else _weights(said, second, operands, placed)
    found = placed(said, last, results[0])
    expected = _formula(name.split(".")[1])(said, source, weights, found.shape)
    for vector, applied in (("scale", np.multiply), ("shift", np.add)):
        if f"{vector}_type" in said:
            expected = applied(expected, operands.pop(0).astype(np.float64))
    # A kernel without weights has no bias, whatever else its attributes say.
    if "bias_type" in said and second == "weights":
        bias = operands.pop(0).astype(np.float64)
        is_row = name in ("onednn.matmul", "onemkl.gemm", "own.narrow_product")
        expected = expected + (bias if is_row else bias.reshape(-1, *[1] * (found.ndim - 2)))
    expected = _with_post_ops(said, expected, operands, placed)
    return [] if expected is None else [(last, found, expected)]


def _weights(said: Said, role: str, operands: list[np.ndarray], placed: Callable) -> np.ndarray:
    """The second operand, taken from those that are left, minus its zero points and times the scales of its groups, if
    it has some.
    """
    given = operands.pop(0)
    if said.get("weights_format") == "packed" and said["weights_type"] in ("s4", "s8"):
        return family_narrow_product.unpacked(said, given)
    if said.get("weights_format") == "packed":
        return family_pack.unpacked(said, given)
    if "weights_block" in said:
        given = family_narrow_product.numbers_of_bytes(said["weights_block"], given)
    weights = placed(said, role, given, said.get(f"{role}_offset", 0)) - said.get("weights_zero", 0)
    found = []
    for of_groups, neutral in (("scales", 1), ("zeros", 0)):
        values = np.full((1, 1), neutral)
        if f"{of_groups}_type" in said:
            values = placed(said, of_groups, operands.pop(0), said.get(f"{of_groups}_offset", 0))
        found.append(np.repeat(values, weights.shape[-2] // values.shape[-2], axis=-2))
    scales, zeros = found
    return (weights - zeros) * scales


def _formula(family: str) -> Callable:
    """Of a family that is not below: `formula` of a file of its own, family_<name>.py."""
    return _FORMULAS.get(family) or importlib.import_module(f"family_{family}").formula


def _with_post_ops(said: Said, value: np.ndarray, operands: list[np.ndarray], placed: Callable) -> np.ndarray | None:
    for number in itertools.count():
        post_op = said.get(f"post_op_{number}")
        if post_op is None:
            return value
        algorithm = post_op["algorithm"]
        bounded = post_op["kind"] == "eltwise" and abs(post_op["alpha"]) < 1e6 > abs(post_op["beta"])
        if bounded and algorithm in _ELTWISE:
            value = _ELTWISE[algorithm](value, post_op["alpha"], post_op["beta"])
        elif post_op["kind"] == "binary":
            described = {"x_dims": post_op["dims"], "x_strides": post_op["strides"]}
            operand = placed(described, "x", operands.pop(0), post_op.get("offset", 0))
            if algorithm not in _BINARY:
                return None
            value = _BINARY[algorithm](value, operand)
        else:
            return None
    return None


def _matmul(said: Said, source: np.ndarray, weights: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    return source @ weights


def _positions(said: Said, kernel: tuple[int, ...], count: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Each place in the kernel, and where it meets the padded array for all positions of the window."""
    for place in itertools.product(*map(range, kernel)):
        starts = [k * (d + 1) for k, d in zip(place, said["dilations"], strict=True)]
        yield (
            place,
            tuple(
                slice(start, start + (size - 1) * stride + 1, stride)
                for start, size, stride in zip(starts, count, said["strides"], strict=True)
            ),
        )


def _padding(said: Said) -> list[tuple[int, int]]:
    return [(low, max(0, high)) for low, high in zip(said["padding_low"], said["padding_high"], strict=True)]


def _grouped(weights_shape: tuple[int, ...], rank: int) -> tuple[int, int, int, tuple[int, ...]]:
    groups, outputs, inputs, *kernel = weights_shape if len(weights_shape) > rank else (1, *weights_shape)
    return groups, outputs, inputs, tuple(kernel)


def _reversed(said: Said, weights: np.ndarray, spatial: int) -> np.ndarray:
    return np.flip(weights, tuple(range(-spatial, 0))) if said.get("weights_reversed") else weights


def _convolution(said: Said, source: np.ndarray, weights: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    groups, outputs, inputs, kernel = _grouped(weights.shape, source.ndim)
    weights = _reversed(said, weights, len(kernel)).reshape(groups, outputs, inputs, *kernel)
    padded = np.pad(source, [(0, 0), (0, 0), *_padding(said)])
    result = np.zeros((dims[0], groups, outputs, *dims[2:]))
    for place, slices in _positions(said, kernel, dims[2:]):
        piece = padded[(slice(None), slice(None), *slices)].reshape(dims[0], groups, inputs, *dims[2:])
        result += np.einsum("bgi...,goi->bgo...", piece, weights[(..., *place)])
    return result.reshape(dims)


def _deconvolution(said: Said, source: np.ndarray, weights: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    groups, outputs, inputs, kernel = _grouped(weights.shape, source.ndim)
    weights = _reversed(said, weights, len(kernel)).reshape(groups, outputs, inputs, *kernel)
    batch, _, *space = source.shape
    by_group = source.reshape(batch, groups, inputs, *space)
    padding = _padding(said)
    whole = np.zeros((batch, groups, outputs, *(size + sum(pad) for size, pad in zip(dims[2:], padding, strict=True))))
    for place, slices in _positions(said, kernel, tuple(space)):
        whole[(slice(None),) * 3 + slices] += np.einsum("bgi...,goi->bgo...", by_group, weights[(..., *place)])
    cut = tuple(slice(low, low + size) for (low, _), size in zip(padding, dims[2:], strict=True))
    return whole[(slice(None),) * 3 + cut].reshape(dims)


def _weights_gradient(said: Said, source: np.ndarray, gradient: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    groups, outputs, inputs, kernel = _grouped(dims, source.ndim)
    padded = np.pad(source, [(0, 0), (0, 0), *_padding(said)])
    batch, _, *space = gradient.shape
    by_group = gradient.reshape(batch, groups, outputs, -1)
    result = np.zeros((groups, outputs, inputs, *kernel))
    for place, slices in _positions(said, kernel, tuple(space)):
        piece = padded[(slice(None), slice(None), *slices)].reshape(batch, groups, inputs, -1)
        result[(..., *place)] = np.einsum("bgip,bgop->goi", piece, by_group)
    return _reversed(said, result, len(kernel)).reshape(dims)


def _pooling(said: Said, source: np.ndarray, _: None, dims: tuple[int, ...]) -> np.ndarray:
    maximum = said["algorithm"] == "max"
    padding = [(0, 0), (0, 0), *_padding(said)]
    padded = np.pad(source, padding, constant_values=-np.inf if maximum else 0.0)
    kernel = tuple(said["window"])
    pieces = [padded[(slice(None), slice(None), *slices)] for _, slices in _positions(said, kernel, dims[2:])]
    return np.max(pieces, axis=0) if maximum else np.sum(pieces, axis=0) / math.prod(kernel)


_FORMULAS: dict[str, Callable] = {
    "matmul": _matmul, "convolution": _convolution, "deconvolution": _deconvolution,
    "weights_gradient": _weights_gradient, "pooling": _pooling,
}  # fmt: skip
