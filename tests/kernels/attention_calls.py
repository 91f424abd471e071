"""Attention calls for tests: attributes from arrays and steps, and the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from calls import attribute

from hlo_dispatch.errors import Refusal, Unavailable
from hlo_dispatch.vendor import kernels, registry
from hlo_dispatch.vendor.kernels import Planned

NAME = "own.attention"
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(jnp.bfloat16), "f16": np.dtype(np.float16)}
TYPE_NAMES = {**{dtype: name for name, dtype in DTYPES.items()}, np.dtype(np.bool_): "pred"}


def described(view: np.ndarray, memory: np.ndarray, prefix: str = "") -> dict[str, Any]:
    """The attributes of an operand: `view`, any strides, into the array `memory`, which is the buffer."""
    size = view.itemsize
    offset = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return {
        f"{prefix}type": TYPE_NAMES[view.dtype],
        f"{prefix}dims": list(view.shape),
        f"{prefix}strides": [stride // size for stride in view.strides],
        f"{prefix}offset": offset // size,
        f"{prefix}elements": memory.size,
    }


@dataclass
class AttentionCall:
    """One call on views of arrays; `steps` are (kind, number, operand) in order."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    steps: list[tuple[str, dict[str, Any], np.ndarray | None]] = field(default_factory=list)
    layout: Sequence[int] = ()
    """The order of the result's dimensions in memory."""
    dst_type: str = ""

    def scale(self, value: float) -> AttentionCall:
        return self._step("scale", value=float(value))

    def softcap(self, value: float) -> AttentionCall:
        return self._step("softcap", value=float(value))

    def causal(self, offset: int, value: float) -> AttentionCall:
        return self._step("causal", offset=offset, value=float(value))

    def window(self, before: int, value: float) -> AttentionCall:
        return self._step("window", before=before, value=float(value))

    def add(self, operand: np.ndarray) -> AttentionCall:
        return self._step("add", operand)

    def select(self, operand: np.ndarray, value: float) -> AttentionCall:
        return self._step("select", operand, value=float(value))

    def _step(self, kind: str, operand: np.ndarray | None = None, **numbers: Any) -> AttentionCall:
        if operand is not None:
            operand = np.broadcast_to(operand, self.score_dims)
        self.steps.append((kind, numbers, operand))
        return self

    @property
    def score_dims(self) -> tuple[int, ...]:
        return (*self.query.shape[:-1], self.key.shape[-2])

    @property
    def dst_dims(self) -> tuple[int, ...]:
        return (*self.query.shape[:-1], self.value.shape[-1])

    @property
    def operands(self) -> list[np.ndarray]:
        """As views; their buffers are what :func:`memory_of` says."""
        return [self.query, self.key, self.value, *(operand for _, _, operand in self.steps if operand is not None)]

    def attributes(self) -> dict[str, Any]:
        found = kernels.library(NAME)
        assert not isinstance(found, Unavailable)
        spec: dict[str, Any] = {"abi": registry.abi(), "library": found.version, "scratch": 0}
        for role, view in (("query", self.query), ("key", self.key), ("value", self.value)):
            spec |= described(view, memory_of(view), f"{role}_")
        layout = list(self.layout or range(len(self.dst_dims)))
        strides, step = [0] * len(layout), 1
        for axis in reversed(layout):
            strides[axis], step = step, step * self.dst_dims[axis]
        type_name = self.dst_type or TYPE_NAMES[self.query.dtype]
        spec |= {"dst_type": type_name, "dst_dims": list(self.dst_dims), "dst_strides": strides}
        for number, (kind, numbers, operand) in enumerate(self.steps):
            entry = {"kind": kind, **numbers}
            if operand is not None:
                entry |= described(operand, memory_of(operand))
            spec[f"score_{number}"] = entry
        return spec

    def planned(self, **changes: Any) -> Planned | Refusal:
        return kernels.plan(NAME, self.attributes() | changes)

    def compiled(self, **changes: Any) -> Callable[..., Any]:
        """A jitted function of the operands' buffers, which returns the result in memory order."""
        spec = self.attributes() | changes
        attributes = {name: attribute(value) for name, value in spec.items() if value is not None}
        layout = list(self.layout or range(len(self.dst_dims)))
        dims = tuple(self.dst_dims[axis] for axis in layout)
        results = (jax.ShapeDtypeStruct(dims, DTYPES[spec["dst_type"]]), jax.ShapeDtypeStruct((0,), np.uint8))
        target = registry.kernels()[NAME].target
        return jax.jit(lambda *buffers: jax.ffi.ffi_call(target, results)(*buffers, **attributes)[0])

    def buffers(self) -> list[np.ndarray]:
        return [memory_of(operand) for operand in self.operands]

    def run(self, **changes: Any) -> np.ndarray:
        """The logical result, in float64."""
        return self.logical(self.compiled(**changes)(*self.buffers()))

    def logical(self, memory: Any) -> np.ndarray:
        layout = list(self.layout or range(len(self.dst_dims)))
        return np.asarray(memory).transpose(np.argsort(layout)).astype(np.float64)

    def expected(self, *, of_magnitudes: bool = False) -> np.ndarray:
        """In float64, as the formula has it; or what the weighted values would be if all were positive."""
        query, key, value = (x.astype(np.float64) for x in (self.query, self.key, self.value))
        with np.errstate(all="ignore"):
            scores = stepped(query @ np.swapaxes(key, -1, -2), self.steps)
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            weights = powers / powers.sum(-1, keepdims=True)
            return weights @ (np.abs(value) if of_magnitudes else value)

    def wrong(self, result: np.ndarray | None = None) -> str:
        """What is wrong about the result, of running it if none is given; nothing where it is right."""
        found = self.run() if result is None else result
        expected, magnitude = self.expected(), self.expected(of_magnitudes=True)
        if found.shape != expected.shape:
            return f"{found.shape} for {expected.shape}"
        types = {TYPE_NAMES[operand.dtype] for operand in self.operands[:3]} | {self.dst_type or "f32"}
        rounding = 2.0**-7 if "bf16" in types else 2.0**-10 if "f16" in types else 1e-5
        with np.errstate(all="ignore"):
            good = np.abs(found - expected) <= rounding * magnitude + 1e-30
        bad = ~np.where(np.isfinite(expected), good, np.isnan(found) == np.isnan(expected))
        if not bad.any():
            return ""
        return f"{bad.sum()} of {bad.size}, first {found[bad][0]} not {expected[bad][0]} of {magnitude[bad][0]}"


ABSORBING = 1e6
"""Scores of this size are a mask's numbers; f32 adds nothing of an addend's size to them."""


def stepped(scores: np.ndarray, steps: list[tuple[str, dict[str, Any], np.ndarray | None]]) -> np.ndarray:
    """In float64; what is too large for f32 is infinite and what a mask's number absorbs there is absorbed."""
    queries, keys = np.ogrid[: scores.shape[-2], : scores.shape[-1]]
    for kind, numbers, operand in steps:
        value = np.float64(np.float32(numbers.get("value", 0)))
        if kind == "scale":
            scores = scores * value
        elif kind == "softcap":
            scores = value * np.tanh(scores / value)
        elif kind == "causal":
            scores = np.where(keys <= queries + numbers["offset"], scores, value)
        elif kind == "window":
            scores = np.where(keys > queries - numbers["before"], scores, value)
        elif kind == "add":
            assert operand is not None
            scores = scores + operand.astype(np.float64)
        else:
            assert operand is not None
            scores = np.where(operand, scores, value)
        scores = np.where(np.abs(scores) > np.finfo(np.float32).max, np.copysign(np.inf, scores), scores)
        scores = np.where(np.abs(scores) > ABSORBING, scores.astype(np.float32), scores)
    return scores


def memory_of(view: np.ndarray) -> np.ndarray:
    """The array whose buffer a view shows a part of."""
    while isinstance(view.base, np.ndarray):
        view = view.base
    return view
