"""Sums and means of gathered rows, as embeddings of bags have them: one call, compared with float64."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hlo_dispatch
from side_by_side import Both, assert_close, run_both

KERNEL = "own.gathered_sums"
RNG = np.random.default_rng(54)
TOLERANCES = {"float32": 2e-6, "float64": 1e-14, "bfloat16": 8e-3}
MOST = np.iinfo(np.int32).max


def numbers(*dims: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(dims).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def exact(table: np.ndarray, indices: np.ndarray, axis: int, *, mean: bool = True) -> np.ndarray:
    """In float64, of indices that are inside or count from the end."""
    rows = table.astype(np.float64)[indices]
    return rows.mean(axis) if mean else rows.sum(axis)


def checked(program: Callable, *arguments: Any, expected: Any = None, calls: int = 1, **options: Any) -> Both:
    both = run_both(program, *arguments, **options)
    assert [region.kernel for region in both.report.dispatched].count(KERNEL) == calls
    for ours, stock in zip(both.dispatched, both.stock, strict=True):
        assert ours.dtype == stock.dtype
        tolerance = TOLERANCES.get(str(ours.dtype), 0)
        assert_close(ours.astype(np.float64), stock.astype(np.float64), 2 * tolerance)
        if expected is not None:
            assert_close(ours.astype(np.float64), expected, tolerance)
    return both


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    ("size", "sums", "count", "width"),
    [(2, 1, 2, 1), (30, 3, 64, 256), (7, 5, 3, 300), (100, 33, 50, 17), (1000, 2, 2049, 37), (9, 65, 33, 130)],
)
def test_means(size: int, sums: int, count: int, width: int, dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        table, indices = numbers(size, width, dtype=dtype), RNG.integers(-size, size, (sums, count), np.int32)
        checked(lambda table, i: table[i].mean(1), table, indices, expected=exact(table, indices, 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_along_either_dimension(dtype: str) -> None:
    table, indices = numbers(40, 70, dtype=dtype), RNG.integers(0, 40, (11, 6, 13), np.int32)
    checked(lambda t, i: t[i].sum((1, 2)), table, indices, expected=exact(table, indices, (1, 2), mean=False))
    checked(lambda t, i: t[i].sum(0), table, indices, expected=exact(table, indices, 0, mean=False))
    checked(lambda t, i: t[i[0]].mean(0), table, indices, expected=exact(table, indices[0], 0))
    both = run_both(lambda t, i: t[i].sum(1), table, indices)  # neither first nor last
    assert KERNEL not in [region.kernel for region in both.report.dispatched]


@pytest.mark.parametrize("mode", [None, "fill", "clip", "wrap"])
def test_indices_outside(mode: str | None) -> None:
    table, indices = numbers(40, 70), RNG.integers(-40, 40, (50, 9), np.int32)
    indices[3, 4], indices[5, 0], indices[7, 8], indices[9, 2] = 40, -41, MOST, -MOST - 1
    both = run_both(lambda t, i: jnp.take(t, i, axis=0, mode=mode).sum(1), table, indices)
    np.testing.assert_array_equal(np.isnan(both.dispatched[0]), np.isnan(both.stock[0]))
    np.testing.assert_allclose(both.dispatched[0], both.stock[0], rtol=1e-5, atol=1e-5)
    if mode in (None, "fill", "clip"):
        assert KERNEL in [region.kernel for region in both.report.dispatched]
    zeros = checked(lambda t, i: t.at[i].get(mode="fill", fill_value=0).mean(1), table, indices)
    assert np.isfinite(zeros.dispatched[0]).all()


def test_special_numbers() -> None:
    table = numbers(40, 70)
    table[3, 5], table[4, 6], table[5, 6], table[6, :] = np.nan, np.inf, -np.inf, -0.0
    indices = RNG.integers(0, 40, (50, 9), np.int32)
    indices[0] = 6
    both = run_both(lambda t, i: t[i].sum(1), table, indices)
    assert KERNEL in [region.kernel for region in both.report.dispatched]
    np.testing.assert_allclose(both.dispatched[0], both.stock[0], rtol=1e-5, atol=1e-5)


def test_other_indices() -> None:
    """Computed ones, columns of pairs, 64-bit ones."""
    table, indices = numbers(40, 70), RNG.integers(0, 20, (50, 9, 2), np.int32)
    checked(lambda t, i: t[i[..., 1]].mean(1), table, indices)
    checked(lambda t, i: t[i[..., 0] + i[..., 1]].mean(1), table, indices)
    with jax.enable_x64(True):
        checked(lambda t, i: t[i].mean(1), table, indices[..., 0].astype(np.int64))


def test_in_programs() -> None:
    """Behind and ahead of other operations, under vmap, in loops and branches, and its gradient."""
    table, indices = numbers(60, 32), RNG.integers(0, 60, (20, 12), np.int32)
    weights = numbers(32, 16)

    def program(table: jax.Array, i: jax.Array, weights: jax.Array) -> Any:
        of_bags = jax.vmap(lambda bag: table[bag].mean(0))(i)
        step = lambda c, j: (c + table[(j + i) % 60].sum(1)[3], c)  # noqa: E731
        in_loop = jax.lax.scan(step, jnp.zeros(32), jnp.arange(4))[0]
        chosen = jax.lax.cond(weights[0, 0] > 9, lambda: of_bags, lambda: jnp.take(table, i, axis=0).sum(1) + 1)
        gradient = jax.grad(lambda t: (jnp.tanh(t[i].mean(1) @ weights) ** 2).sum())(table)
        return of_bags, in_loop, chosen, gradient

    both = run_both(program, table, indices, weights)
    assert [region.kernel for region in both.report.dispatched].count(KERNEL) >= 3
    for ours, stock in zip(both.dispatched, both.stock, strict=True):
        assert_close(ours, stock, 2e-5)


def test_frozen_donated_and_from_several_threads() -> None:
    table, indices = numbers(3000, 256), RNG.integers(0, 3000, (100, 64), np.int32)
    expected = exact(table, indices, 1)
    both = run_both(lambda i, t, x: x + t[i].mean(1), indices, table, numbers(100, 256), donate_argnums=(2,))
    assert_close(both.dispatched[0], both.stock[0], 2e-6)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda table, i: jnp.take(table, i, axis=0).mean(1), table)
        assert_close(np.asarray(frozen(indices)), expected, 2e-6)
        with ThreadPoolExecutor(4) as pool:
            for again in pool.map(lambda _: np.asarray(frozen(indices)), range(8)):
                assert_close(again, expected, 2e-6)


@pytest.mark.parametrize(
    "program",
    [
        lambda t, i: t[i].max(1),
        lambda t, i: t[i].sum(2),
        lambda t, i: (t * 2)[i].sum(1),
        lambda t, i: (t[i] ** 2).sum(1),
        lambda t, i: (t[i], t[i].sum(1)),
        lambda t, i: t[:, i].sum(1),
    ],
    ids=["maximum", "of columns", "computed", "squares", "rows as well", "columns"],
)
def test_what_stays_with_stock(program: Callable) -> None:
    both = run_both(program, numbers(40, 70), RNG.integers(0, 40, (50, 9), np.int32))
    assert KERNEL not in [region.kernel for region in both.report.dispatched]


@pytest.mark.parametrize(
    "program",
    [
        lambda t, i: t[jnp.where(i == 7, 3, i)].sum(1),
        lambda t, i: jnp.take(t, jnp.where(i == 7, 3, i), axis=0).mean(1),
        lambda t, i: t[jnp.where((i > 10) & (i < 20), 0, i)].sum(1),
        lambda t, i: t[i + (i == 7)].sum(1),
        lambda t, i: t[jnp.where(i - 2 == 3, 0, i)].sum(1),
        lambda t, i: jnp.where(((i >= -40) & (i < 40) & (i != 7))[..., None], t[i], 0).sum(1),
        lambda t, i: t.at[jnp.where(i == 7, 40, i)].get(mode="fill", fill_value=0).mean(1),
        lambda t, i: t[i % 32].sum(1),
        lambda t, i: t[(i & 7) - (i & 1)].sum(1),
        lambda t, i: jnp.take(t[:32], i, axis=0, mode="wrap").sum(1),
        lambda t, i: jnp.zeros(40).at[jnp.where(i == 7, 0, i).ravel()].add(1),
        lambda t, i: jnp.zeros((40, 24)).at[i[:, 0]].add(i[:, 1:2] * t[jnp.where(i[:, 2] == 7, 3, i[:, 2])]),
    ],
)
def test_what_else_becomes_of_indices(program: Callable) -> None:
    """Each index is there: none is between samples."""
    table, indices = numbers(40, 24), RNG.permuted(np.tile(np.arange(40, dtype=np.int32), (12, 1)), axis=1)
    before = hlo_dispatch.statistics().failures
    both = run_both(program, table, indices)
    assert hlo_dispatch.statistics().failures == before
    for ours, stock in zip(both.dispatched, both.stock, strict=True):
        assert_close(ours, stock, 4e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_very_many_rows(dtype: str) -> None:
    """Equal numbers are rounded off to one side."""
    with jax.enable_x64(dtype == "float64"):
        table, indices = np.full((8, 19), 0.1, dtype), RNG.integers(0, 8, 1 << 19, np.int32)
        expected = float(table[0, 0]) * len(indices)
        checked(lambda t, i: t[i].sum(0), table, indices, expected=np.full(19, expected))
        table[3, 2], table[5, 3] = np.inf, np.nan
        both = run_both(lambda t, i: t[i].sum(0), table, indices)
        (found,) = both.dispatched
        assert np.isposinf(found[2])
        assert np.isnan(found[3])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bfloat16", "float16"])
def test_converted_indices(dtype: str) -> None:
    table, indices = numbers(5000, 24), RNG.integers(0, 5000, (12, 9), np.int32)

    def program(t: Any, i: Any) -> Any:
        converted = i.astype(dtype).astype(jnp.int32)
        return t[converted].sum(1), jnp.zeros(5000).at[converted.ravel()].add(1)

    both = run_both(program, table, indices)
    for ours, stock in zip(both.dispatched, both.stock, strict=True):
        assert_close(ours, stock, 4e-6)
