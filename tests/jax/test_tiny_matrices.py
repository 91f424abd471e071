"""LU and triangular solves of batches of tiny matrices, one in each lane of a vector: sizes, triangles and orders."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocked_kernels import choose_blocked, compiled

from processor import needs_avx512

pytestmark = needs_avx512

BATCH = (3, 13)  # the last group of lanes is not full
SHAPES = [(1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (3, 7), (8, 5), (1, 4)]
LARGEST_RESIDUAL = 4  # in units of size * epsilon * norm


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Our own code is chosen wherever there is some."""
    choose_blocked(monkeypatch)
    with jax.enable_x64(True):
        yield request.param


def drawn(number: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(number).standard_normal(shape).astype(dtype)


def within(difference: np.ndarray, dtype: str, size: int, *factors: np.ndarray) -> bool:
    """Whether each matrix of a batch is as near as rounding leaves it. Not where one is no number."""
    norms = np.prod([np.linalg.norm(factor, axis=(-2, -1)) for factor in factors], axis=0)
    bound = LARGEST_RESIDUAL * max(size, 4) * np.finfo(dtype).eps * norms
    return bool(np.all(np.linalg.norm(difference, axis=(-2, -1)) <= bound))


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_factors(dtype: str, rows: int, columns: int) -> None:
    """By rows and by columns: multiplied they are the matrix in the order of its pivots, which are the largest."""
    a = drawn(rows + 10 * columns, (*BATCH, rows, columns), dtype)

    def program(a: jax.Array, by_column: jax.Array) -> Any:
        return jax.lax.linalg.lu(a), jax.lax.linalg.lu(jnp.swapaxes(by_column, -1, -2))

    executable = compiled(program, a, np.swapaxes(a, -1, -2).copy(), kernel="lu")
    for results in executable(a, np.swapaxes(a, -1, -2).copy()):
        lu, pivots, order = map(np.asarray, results)
        least = min(rows, columns)
        wide = lu.astype(np.float64)
        lower = np.tril(wide, -1)[..., :least] + np.eye(rows, least)
        upper = np.triu(wide)[..., :least, :]
        assert np.abs(lower).max() <= 1
        assert np.all((pivots >= np.arange(least)) & (pivots < rows))
        expected = np.take_along_axis(a.astype(np.float64), order[..., None], -2)
        assert within(lower @ upper - expected, dtype, max(rows, columns), lower, upper)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_triangular_systems(dtype: str, size: int) -> None:
    """Of every triangle, side and order, transposed or not, with ones on the diagonal or not."""
    ways = list(product((True, False), repeat=4))
    whole = drawn(size, (*BATCH, size, size), dtype) / size + 2 * np.eye(size, dtype=dtype)
    b = drawn(size + 1, (*BATCH, size, 3), dtype)

    def program(a: jax.Array, b: jax.Array) -> Any:
        return [
            jax.lax.linalg.triangular_solve(
                a,
                b if left else jnp.swapaxes(b, -1, -2),
                left_side=left,
                lower=lower,
                transpose_a=transposed,
                unit_diagonal=unit,
            )
            for left, lower, transposed, unit in ways
        ]

    results = compiled(program, whole, b, kernel="triangular_solve")(whole, b)
    for (left, lower, transposed, unit), x in zip(ways, results, strict=True):
        a = (np.tril if lower else np.triu)(whole.astype(np.float64))
        if unit:
            a = a * (1 - np.eye(size)) + np.eye(size)
        a = np.swapaxes(a, -1, -2) if transposed else a
        solved = np.asarray(x).astype(np.float64)
        found = a @ solved if left else np.swapaxes(solved @ a, -1, -2)
        assert within(found - b, dtype, size, a, solved), (left, lower, transposed, unit)


def test_solutions_inverses_determinants_and_gradients(dtype: str) -> None:
    """In a scan, under a condition, mapped and differentiated."""
    a = drawn(1, (40, 4, 4), dtype) + 3 * np.eye(4, dtype=dtype)
    b = drawn(2, (40, 4, 2), dtype)

    def program(a: jax.Array, b: jax.Array) -> Any:
        steps = jax.lax.scan(lambda x, _: (jnp.linalg.solve(a, x), x[0, 0, 0]), b, None, length=3)[0]
        chosen = jax.lax.cond(b[0, 0, 0] > 100, lambda: b, lambda: jax.vmap(jnp.linalg.solve)(a, b))
        gradient = jax.grad(lambda a: jnp.linalg.solve(a, b).sum())(a)
        return steps, chosen, jnp.linalg.inv(a), jnp.linalg.det(a), gradient

    got = [np.asarray(result, np.float64) for result in compiled(program, a, b, kernel="lu")(a, b)]
    wide, sides = a.astype(np.float64), b.astype(np.float64)
    inverse = np.linalg.inv(wide)
    x = inverse @ sides
    gradient = -np.swapaxes(inverse, -1, -2) @ np.ones_like(sides) @ np.swapaxes(x, -1, -2)
    expected = [inverse @ (inverse @ x), x, inverse, np.linalg.det(wide), gradient]
    worst = max(np.linalg.cond(wide)) ** 3
    for one, true in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, true, rtol=0, atol=100 * worst * np.finfo(dtype).eps * np.abs(true).max())


def test_bad_matrices_are_alone(dtype: str) -> None:
    """Singular ones and those with what is no number; the others are as without them, to the bit."""
    a = drawn(3, (37, 5, 5), dtype)
    executable = compiled(lambda a: (*jax.lax.linalg.lu(a)[:2], jnp.linalg.slogdet(a)), a, kernel="lu")
    good = jax.tree.map(np.asarray, executable(a))
    a[4], a[7, :, 2], a[11, 3], a[20, 1, 2], a[36, 4, 0] = 0, 0, 0, np.nan, np.inf
    lu, pivots, (signs, logarithms) = jax.tree.map(np.asarray, executable(a))
    bad = [4, 7, 11, 20, 36]
    others = [n for n in range(37) if n not in bad]
    for one, other in zip((lu, pivots, signs, logarithms), (good[0], good[1], *good[2]), strict=True):
        np.testing.assert_array_equal(one[others], other[others])
    np.testing.assert_array_equal(signs[[4, 7, 11]], 0)
    np.testing.assert_array_equal(logarithms[[4, 7, 11]], -np.inf)
    assert np.isnan(lu[20]).any()
    assert not np.isfinite(lu[36]).all()
    np.testing.assert_array_equal(lu[4], 0)
    np.testing.assert_array_equal(pivots[4], np.arange(5))


def test_from_several_threads(dtype: str) -> None:
    inputs = [drawn(n, (20_000, 3, 3), dtype) for n in range(3)]
    executable = compiled(jnp.linalg.inv, inputs[0], kernel="triangular_solve")
    alone = [np.asarray(executable(a)) for a in inputs]

    def repeated(a: np.ndarray) -> list[np.ndarray]:
        with jax.enable_x64(True):  # a setting of the thread
            return [np.asarray(executable(a)) for _ in range(5)]

    with ThreadPoolExecutor(3) as pool:
        for wanted, several in zip(alone, pool.map(repeated, inputs), strict=True):
            for got in several:
                np.testing.assert_array_equal(got, wanted)
