"""Squared distances between all points of two sets: one call, and numbers no further from float64 than stock's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from side_by_side import Both, run_both

RNG = np.random.default_rng(23)


def points(*dims: int, dtype: str = "float32") -> jax.Array:
    return jnp.asarray(RNG.standard_normal(dims), dtype)


def squared(x: jax.Array, y: jax.Array) -> jax.Array:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def check(found: Both, x: Any, y: Any) -> None:
    assert "own.squared_distances" in found.text
    wide = ((np.asarray(x, np.float64)[:, None] - np.asarray(y, np.float64)[None]) ** 2).sum(-1)
    ours, stock = (np.abs(np.asarray(each[0], np.float64) - wide) for each in (found.dispatched, found.stock))
    unit = np.finfo(found.dispatched[0].dtype).eps
    assert (ours <= stock + 8 * unit * wide).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(40, 50, 7), (3, 65, 64), (129, 31, 200), (2, 3, 1030), (200, 200, 2)])
def test_sizes(sizes: tuple[int, int, int], dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        m, n, k = sizes
        x, y = points(m, k, dtype=dtype), points(n, k, dtype=dtype)
        check(run_both(squared, x, y), x, y)


def test_near_points_do_not_cancel() -> None:
    x = 1000 + points(60, 16) * 1e-3
    y = x[:30] + 1e-3
    check(run_both(squared, x, y), x, y)


def test_equal_points_are_0_apart_and_nan_stays() -> None:
    x = points(70, 9).at[3, 2].set(jnp.nan).at[5, 0].set(jnp.inf)
    found = run_both(squared, x, x)
    assert "own.squared_distances" in found.text
    np.testing.assert_array_equal(np.isnan(found.dispatched[0]), np.isnan(found.stock[0]))
    diagonal = np.delete(np.diag(found.dispatched[0]), [3, 5])
    np.testing.assert_array_equal(diagonal, np.zeros(68))


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: jnp.exp(-0.5 * squared(x, y)),
        lambda x, y: jnp.sqrt(((y[None] - x[:, None]) ** 2).sum(-1)),
        jax.vmap(lambda point, others: ((point - others) ** 2).sum(-1), (0, None)),
        lambda x, y: jax.lax.scan(lambda c, _: (c + squared(x + c[0, 0], y), 0.0), jnp.zeros((33, 41)), None, length=3),
    ],
    ids=["kernel of a Gaussian process", "roots", "vmap", "loop"],
)
def test_in_programs(program: Callable[..., Any]) -> None:
    found = run_both(program, points(33, 12), points(41, 12))
    assert "own.squared_distances" in found.text
    for ours, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_allclose(ours, stock, rtol=2e-5, atol=2e-6)


def test_frozen_and_gradient() -> None:
    x, y = points(33, 12), points(41, 12)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda y, x: squared(x, y), y)
        np.testing.assert_allclose(frozen(x), squared(x, y), rtol=1e-5)
    found = run_both(jax.grad(lambda x, y: jnp.exp(-squared(x, y)).sum()), x, y)
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1),
        lambda x, y: ((x[:, None] - y[None]) ** 2).sum(1),
        lambda x, y: ((x[:, None] + y[None]) ** 2).sum(-1),
    ],
    ids=["absolute", "another sum", "sums"],
)
def test_what_stays_with_stock(program: Callable[..., Any]) -> None:
    found = run_both(program, points(33, 12), points(41, 12))
    assert "own.squared_distances" not in found.text
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], rtol=1e-5)
