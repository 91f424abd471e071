"""Kernel calls for tests: specs from shapes, execution through JAX's FFI, float64 references in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.vendor import kernels, registry
from hlo_dispatch.vendor.kernels import Planned

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(jnp.bfloat16)}
TYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()} | {np.dtype(np.float16): "f16"}


class HashableArray(np.ndarray):
    """JAX hashes the attributes of a call, nested ones included, and hashes no plain array.

    Where hashes happen to share some bits it also compares them, with numbers, too: NumPy would do so element by
    element, which is neither true nor false.
    """

    __array_ufunc__ = None

    def __hash__(self) -> int:
        return hash(self.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, np.ndarray) and self.tobytes() == other.tobytes()

    def __ne__(self, other: object) -> bool:
        return not self == other


def attribute(value: Any) -> Any:
    """One attribute as JAX lowers it to the typed dictionary: i64, f32, string, array of i64, dictionary."""
    if isinstance(value, dict):
        return {key: attribute(entry) for key, entry in value.items()}
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return np.int64(value)
    if isinstance(value, float):
        return np.float32(value)
    return np.asarray(value, np.int64).view(HashableArray)


def strides_of(dims: Sequence[int], layout: Sequence[int]) -> list[int]:
    """Element strides of a dense array with the dimension order `layout` in memory, slowest first."""
    strides, step = [0] * len(dims), 1
    for axis in reversed(layout):
        strides[axis], step = step, step * dims[axis]
    return strides


@dataclass(frozen=True)
class Tensor:
    """A logical array, and the order of its dimensions in memory."""

    values: np.ndarray
    layout: tuple[int, ...]

    @property
    def memory(self) -> np.ndarray:
        return np.ascontiguousarray(self.values.transpose(self.layout))

    def attributes(self, role: str) -> dict[str, Any]:
        dims = list(self.values.shape)
        return {
            f"{role}_type": TYPE_NAMES[self.values.dtype],
            f"{role}_dims": dims,
            f"{role}_strides": strides_of(dims, self.layout),
        }


def tensor(values: np.ndarray, layout: Sequence[int] | None = None) -> Tensor:
    return Tensor(values, tuple(layout or range(values.ndim)))


def random_values(generator: np.random.Generator, shape: Sequence[int], dtype: str = "f32") -> np.ndarray:
    return generator.standard_normal(tuple(shape)).astype(DTYPES[dtype])


@dataclass
class Call:
    """A kernel call: spec, operands in order, and what the result looks like."""

    name: str
    spec: dict[str, Any]
    operands: list[np.ndarray]
    result_dims: tuple[int, ...]
    result_dtype: np.dtype
    result_layout: tuple[int, ...]
    post_ops: int = field(default=0)

    def eltwise(self, algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Call:
        return self._append({"kind": "eltwise", "algorithm": algorithm, "alpha": float(alpha), "beta": float(beta)})

    def binary(self, algorithm: str, operand: np.ndarray, layout: Sequence[int] | None = None) -> Call:
        described = tensor(operand, layout)
        entry = described.attributes("x")
        self.operands.append(described.memory)
        return self._append(
            {"kind": "binary", "algorithm": algorithm, "type": entry["x_type"], "dims": entry["x_dims"],
             "strides": entry["x_strides"]}
        )  # fmt: skip

    def _append(self, post_op: dict[str, Any]) -> Call:
        self.spec[f"post_op_{self.post_ops}"] = post_op
        self.post_ops += 1
        return self

    def asked(self) -> dict[str, Any]:
        """All attributes, as planning is asked about them."""
        library = kernels.library(self.name)
        assert not isinstance(library, Unavailable)
        return {"library": library.version, "scratch": 0} | self.spec

    def planned(self, **changes: Any) -> Planned | Refusal:
        """What the kernel says to the call; `changes` replace attributes."""
        return kernels.plan(self.name, self.asked() | changes)

    def compiled(self, **changes: Any) -> Any:
        """A jitted function of the operands; `changes` replace what planning would put into the attributes."""
        planned = self.planned()
        assert not isinstance(planned, Refusal), planned
        wire = {**self.asked(), "scratch": planned.scratch_bytes, **self.spec, **changes}
        attributes = {key: attribute(value) for key, value in wire.items() if value is not None}
        memory_dims = tuple(self.result_dims[axis] for axis in self.result_layout)
        results = (
            jax.ShapeDtypeStruct(memory_dims, self.result_dtype),
            jax.ShapeDtypeStruct((int(wire["scratch"] or 0),), np.uint8),
        )
        target = registry.kernels()[self.name].target
        return jax.jit(lambda *operands: jax.ffi.ffi_call(target, results)(*operands, **attributes)[0])

    def run(self, **changes: Any) -> np.ndarray:
        """The logical result, in float64."""
        return self.logical(self.compiled(**changes)(*self.operands))

    def logical(self, memory: Any) -> np.ndarray:
        """What a compiled call returned, in the result's own order of dimensions and in float64."""
        return np.asarray(memory).transpose(np.argsort(self.result_layout)).astype(np.float64)


def run_together(calls: Sequence[Call]) -> list[np.ndarray]:
    """The logical results of several calls in one program, which takes hardly longer to compile than one of them."""
    functions = [call.compiled() for call in calls]
    together = jax.jit(lambda operands: [run(*own) for run, own in zip(functions, operands, strict=True)])
    results = together([call.operands for call in calls])
    return [call.logical(result) for call, result in zip(calls, results, strict=True)]


def matmul_call(
    source: Tensor, weights: Tensor, bias: np.ndarray | None = None, result_layout: Sequence[int] | None = None,
    name: str = "onednn.matmul",
) -> Call:  # fmt: skip
    batch = np.broadcast_shapes(source.values.shape[:-2], weights.values.shape[:-2])
    dims = (*batch, source.values.shape[-2], weights.values.shape[-1])
    return _call(name, source, weights, bias, dims, result_layout, {})


@dataclass(frozen=True)
class Window:
    """One entry per spatial dimension; dilations as oneDNN counts them (0 is dense)."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    def result_size(self, size: int, kernel: int, axis: int) -> int:
        reach = (kernel - 1) * (self.dilations[axis] + 1) + 1
        return (size + self.low[axis] + self.high[axis] - reach) // self.strides[axis] + 1


def convolution_call(
    source: Tensor, weights: Tensor, window: Window, bias: np.ndarray | None = None,
    result_layout: Sequence[int] | None = None,
) -> Call:  # fmt: skip
    grouped = weights.values.ndim > source.values.ndim
    channels = int(np.prod(weights.values.shape[: 1 + grouped]))
    kernel = weights.values.shape[2 + grouped :]
    spatial = [window.result_size(size, kernel[axis], axis) for axis, size in enumerate(source.values.shape[2:])]
    dims = (source.values.shape[0], channels, *spatial)
    attributes = {
        "strides": list(window.strides), "dilations": list(window.dilations),
        "padding_low": list(window.low), "padding_high": list(window.high),
    }  # fmt: skip
    return _call("onednn.convolution", source, weights, bias, dims, result_layout, attributes)


def _call(
    name: str, source: Tensor, weights: Tensor, bias: np.ndarray | None, dims: Sequence[int],
    result_layout: Sequence[int] | None, attributes: dict[str, Any],
) -> Call:  # fmt: skip
    layout = tuple(result_layout or range(len(dims)))
    dtype = source.values.dtype
    spec = {"abi": registry.abi()} | source.attributes("src") | weights.attributes("weights")
    spec |= {"dst_type": TYPE_NAMES[dtype], "dst_dims": list(dims), "dst_strides": strides_of(dims, layout)}
    spec |= attributes
    operands = [source.memory, weights.memory]
    if bias is not None:
        spec["bias_type"] = TYPE_NAMES[bias.dtype]
        operands.append(bias)
    return Call(name, spec, operands, tuple(dims), dtype, layout)


def convolve(source: np.ndarray, weights: np.ndarray, window: Window) -> np.ndarray:
    """Reference convolution in float64: one multiplication of shifted slices per kernel position."""
    source, weights = source.astype(np.float64), weights.astype(np.float64)
    if weights.ndim == source.ndim:
        weights = weights[None]
    groups, outputs, inputs, *kernel = weights.shape
    padded = np.pad(source, [(0, 0), (0, 0), *zip(window.low, window.high, strict=True)])
    batch, _, *sizes = source.shape
    spatial = [window.result_size(size, kernel[axis], axis) for axis, size in enumerate(sizes)]
    result = np.zeros((batch, groups, outputs, *spatial))
    for position in itertools.product(*map(range, kernel)):
        slices = [
            slice(start, start + (count - 1) * stride + 1, stride)
            for start, count, stride in zip(
                (p * (d + 1) for p, d in zip(position, window.dilations, strict=True)),
                spatial,
                window.strides,
                strict=True,
            )
        ]
        piece = padded[(slice(None), slice(None), *slices)].reshape(batch, groups, inputs, *spatial)
        result += np.einsum("bgi...,goi->bgo...", piece, weights[(..., *position)])
    return result.reshape(batch, groups * outputs, *spatial)


def assert_close(result: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, dtype: str = "f32") -> None:
    """Compare within rounding of the sums (`magnitude` is the sum of absolute products) and of the result."""
    assert result.shape == expected.shape
    rounding = {"f32": 1e-6, "f16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    allowed = 1e-5 * magnitude + rounding * np.abs(expected) + 1e-30
    # Written so that a NaN on either side fails.
    wrong = ~(np.abs(result - expected) <= allowed)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ, first {result[wrong][0]} not {expected[wrong][0]}"
