"""Sources that a program rounds to eight bits: the kernel does it where it computes the same, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from integer_programs import dispatched

from dynamic_quantization import SMALLEST, in_eight_bits

ROWS, DEPTH, COLUMNS, GROUP = 12, 128, 34, 64
RANDOM = np.random.default_rng(8)
Q = RANDOM.integers(-128, 128, (DEPTH, COLUMNS), np.int8)
X = RANDOM.standard_normal((ROWS, DEPTH)).astype(np.float32)


def in_groups(x: Any, group: int = GROUP, *, most: float = 127.0, least: float = SMALLEST, of: Any = None) -> Any:
    """x rounded, by the largest of another array on request."""
    apart = x.reshape(x.shape[0], -1, group)
    measured = jnp.abs(apart if of is None else of.reshape(apart.shape))
    return rounded(apart, jnp.maximum(measured.max(-1, keepdims=True), np.float32(least)), most).reshape(x.shape)


def rounded(apart: Any, largest: Any, most: float = 127.0) -> Any:
    return jnp.round(apart * (most / largest)) * (largest * np.float32(1 / most))


def interleaved(x: Any) -> Any:
    apart = x.reshape(ROWS, GROUP, -1)
    return rounded(apart, jnp.maximum(jnp.abs(apart).max(1, keepdims=True), np.float32(SMALLEST))).reshape(x.shape)


def of_columns(x: Any) -> Any:
    return rounded(x, jnp.maximum(jnp.abs(x).max(0, keepdims=True), np.float32(SMALLEST)))


def without_sign(x: Any) -> Any:
    apart = x.reshape(ROWS, -1, GROUP)
    return rounded(apart, jnp.maximum(apart.max(-1, keepdims=True), np.float32(SMALLEST))).reshape(x.shape)


def formula_of(function: Callable[[Any], Any], x: Any = X) -> str:
    """The kernel's formula; results are as the program says."""
    found, regions = dispatched(lambda x, q: function(x) @ q.astype(jnp.float32), x, Q)
    exact = np.asarray(function(jnp.asarray(x))).astype(np.float64) @ Q.astype(np.float64)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    (formula,) = [region.formula for region in regions if region.kernel == "own.narrow_product"]
    return formula


@pytest.mark.parametrize("group", [16, 32, 64, 128])
def test_the_kernel_rounds(group: int) -> None:
    assert formula_of(lambda x: in_groups(x, group)) == "round(x) @ w"
    np.testing.assert_array_equal(in_groups(jnp.asarray(X), group), in_eight_bits(X, group).astype(np.float32))


def test_the_kernel_rounds_what_is_computed_first() -> None:
    assert formula_of(lambda x: in_groups(jnp.tanh(x) + 2 * x)) == "round(x) @ w"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: in_groups(x, most=126.0),
        lambda x: in_groups(x, least=1e-3),
        lambda x: in_groups(x, of=x + 1),
        lambda x: in_groups(x) * 2,
        interleaved,
        of_columns,
        without_sign,
    ],
    ids=["126", "another bound", "another array", "scaled", "interleaved", "columns", "without sign"],
)
def test_what_is_something_else_is_computed_as_it_is(function: Callable[[Any], Any]) -> None:
    assert formula_of(function) == "x @ w"
