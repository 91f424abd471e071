"""Sums of long vectors and norms of long rows: one call, no further from float64 than stock's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from side_by_side import Both, run_both

KERNEL = "own.row_sums"
RNG = np.random.default_rng(17)


def numbers(*dims: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(dims).astype(dtype)


def norms(x: Any) -> jax.Array:
    return jnp.linalg.norm(x, axis=-1)


def check(found: Both, expected: Any, scale: Any) -> None:
    """Within some units of the sum of what is added, as the sum of blocks is."""
    assert KERNEL in found.text
    ours = found.dispatched[0]
    assert (ours.shape, ours.dtype) == (found.stock[0].shape, found.stock[0].dtype)
    error = np.abs(ours.astype(np.float64) - expected)
    assert (error <= 32 * np.finfo(ours.dtype).eps * scale).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [65_536, 131_075, 1_000_003])
def test_sums(count: int, dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        x = numbers(count, dtype=dtype)
        check(run_both(jnp.sum, x), x.astype(np.float64).sum(), np.abs(x.astype(np.float64)).sum())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dims", [(257, 512), (3, 50_001), (7, 41, 520), (131_072,)])
def test_norms(dims: tuple[int, ...], dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        x = numbers(*dims, dtype=dtype)
        expected = np.linalg.norm(x.astype(np.float64), axis=-1)
        check(run_both(norms, x), expected, expected)


def test_special_numbers() -> None:
    x = numbers(300, 600)
    x[1, 3], x[2, 599], x[3, 0], x[4] = np.nan, np.inf, -np.inf, 0
    found = run_both(norms, x)
    assert KERNEL in found.text
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], rtol=1e-5)
    y = numbers(200_000)
    y[150_000] = np.nan
    assert np.isnan(run_both(jnp.sum, y).dispatched[0])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x / norms(x)[:, None],
        jax.vmap(lambda row: jnp.sqrt((row * row).sum()) + 1),
        lambda x: jax.lax.scan(lambda c, _: (c + norms(x + c[0]), 0.0), jnp.zeros(300), None, length=2)[0],
        lambda x: jax.lax.cond(x[0, 0] > 9, norms, lambda x: norms(2 + x), x),
    ],
    ids=["normalized", "vmap", "loop", "branches"],
)
def test_in_programs(program: Callable[..., Any]) -> None:
    found = run_both(program, numbers(300, 600))
    for ours, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_allclose(ours, stock, rtol=2e-5)


def test_frozen_and_gradient() -> None:
    x = numbers(300, 600)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda w, x: norms(x) * w, numbers(300))
        frozen(x)
    found = run_both(jax.grad(lambda x: norms(x).sum()), x)
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], rtol=1e-5)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x * 2).sum(),
        lambda x: x[:60_000].sum(),
        lambda x: jnp.sqrt((x.reshape(-1, 8) ** 2).sum(-1)),
    ],
    ids=["of computed numbers", "few", "short rows"],
)
def test_what_stays_with_stock(program: Callable[..., Any]) -> None:
    found = run_both(program, numbers(200_000))
    assert KERNEL not in found.text
