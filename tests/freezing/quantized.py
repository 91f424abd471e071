"""What weights are taken for by `freeze(..., weights=...)`, in float64 but for the scales, and how near results are."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np


def wide(value: Any) -> Any:
    return np.asarray(value, "float64")


def assert_near(got: Any, wanted: Any, tolerance: float) -> None:
    """Within a fraction of the largest number."""
    got, wanted = wide(got), wide(wanted)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * np.abs(wanted).max(initial=1e-9))


def rounded(w: Any, *along: int) -> Any:
    """Eight bits, with one scale along these dimensions."""
    return _quantized(np.asarray(w, "float32"), along, 127)


def in_four_bits(w: Any, along: int | tuple[int, ...] = 0, group: int = 64) -> Any:
    """Four bits; `group` elements along these dimensions have one scale."""
    dims = along if isinstance(along, tuple) else (along,)
    w = np.moveaxis(np.asarray(w, "float32"), dims, range(len(dims)))
    size = math.prod(w.shape[: len(dims)])
    apart = w.reshape(-1, group if size % group == 0 else size, *w.shape[len(dims) :])
    return np.moveaxis(_quantized(apart, (1,), 7).reshape(w.shape), range(len(dims)), dims)


def dequantized(form: str, w: Any, along: int | tuple[int, ...]) -> Any:
    """As `form` stores them."""
    if form == "bf16":
        return np.asarray(w).astype(ml_dtypes.bfloat16).astype("float64")
    dims = along if isinstance(along, tuple) else (along,)
    return rounded(w, *dims) if form == "int8" else in_four_bits(w, dims)


def _quantized(w: Any, along: tuple[int, ...], most: int) -> Any:
    largest = np.abs(w).max(axis=along, keepdims=True)
    scale = np.where(largest == 0, np.float32(1), largest / np.float32(most)).astype(np.float64)
    return np.clip(np.round(w / scale), -most, most) * scale


def everywhere(p: dict[str, Any], x: Any) -> Any:
    """Products with weights in loops, branches, conditions, calls and under vmap."""
    x, _ = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, p["stacked"])
    x = jax.lax.cond(x.sum() > 0, lambda x: x @ p["either"], lambda x: 2 * (x @ p["either"]), x)
    x = jax.lax.fori_loop(0, 2, lambda _, x: jnp.tanh(x @ p["repeated"]), x)
    x = jax.lax.while_loop(lambda x: (x @ p["asked"]).sum() > 1e9, lambda x: x, x)
    x = jax.checkpoint(lambda x: jax.jit(lambda x: x @ p["called"])(x))(x)
    return jax.vmap(lambda row: p["mapped"] @ row)(x)


EVERYWHERE = {"stacked": 1, "either": 0, "repeated": 0, "asked": 0, "called": 0, "mapped": 1}
"""Weights of `everywhere` → the dimension that is summed over."""
