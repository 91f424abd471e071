"""LU, triangular solves and eigenvalues of batches of tiny matrices, one in each lane of a vector: sizes, triangles and
orders.
"""

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


def check_eigen(a: np.ndarray, values: Any, vectors: Any, dtype: str) -> None:
    """The vectors are orthogonal and diagonalise the matrix, and the values, which ascend, are NumPy's."""
    w, v = np.asarray(values, np.float64), np.asarray(vectors, np.float64)
    size, wide = a.shape[-1], a.astype(np.float64)
    assert np.all(np.diff(w, axis=-1) >= 0)
    assert within(np.swapaxes(v, -1, -2) @ v - np.eye(size), dtype, size, np.broadcast_to(np.eye(size), v.shape))
    assert within(v * w[..., None, :] @ np.swapaxes(v, -1, -2) - wide, dtype, size, wide)
    expected = np.linalg.eigvalsh(wide)
    bound = LARGEST_RESIDUAL * max(size, 4) * np.finfo(dtype).eps * np.linalg.norm(wide, axis=(-2, -1))
    assert np.all(np.abs(w - expected) <= bound[..., None])


def symmetric(number: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    a = drawn(number, shape, dtype)
    return a + np.swapaxes(a, -1, -2)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8])
def test_eigenvalues(dtype: str, size: int) -> None:
    """With vectors and without, of either triangle of a matrix or of the whole of it, in both orders."""
    a = symmetric(size, (*BATCH, size, size), dtype)
    other = drawn(size + 9, a.shape, dtype)

    def program(a: jax.Array, other: jax.Array) -> Any:
        lower, upper = jnp.tril(a) + jnp.triu(other, 1), jnp.triu(a) + jnp.tril(other, -1)
        return [
            jnp.linalg.eigh(a)[::-1],
            jax.lax.linalg.eigh(lower, lower=True, symmetrize_input=False),
            jax.lax.linalg.eigh(jnp.swapaxes(upper, -1, -2), lower=True, symmetrize_input=False),
            jax.lax.linalg.eigh(upper, lower=False, symmetrize_input=False),
        ], jnp.linalg.eigvalsh(a)

    results, values = compiled(program, a, other, kernel="eigh")(a, other)
    for vectors, w in results:
        check_eigen(a, w, vectors, dtype)
    bound = LARGEST_RESIDUAL * max(size, 4) * np.finfo(dtype).eps * np.linalg.norm(a, axis=(-2, -1))
    assert np.all(np.abs(np.asarray(values) - np.asarray(results[0][1])) <= bound[..., None])


def test_eigenvalues_of_special_matrices(dtype: str) -> None:
    """Diagonal and singular ones, equal values, and numbers whose squares are beyond the type's range."""
    most, least = float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_normal)
    a = np.stack([*symmetric(0, (9, 4, 4), dtype)] + 9 * [np.zeros((4, 4), dtype)])
    a[9:12] = np.diag([3, -1, 2, -1]), np.ones((4, 4)), np.eye(4) - np.ones((4, 4)) / 2
    a[12] = a[0] * (most / 64)
    a[13] = a[1] * (least * 1024)
    a[14] = np.diag([most, 1, least * 16, 0])
    a[15] = np.array([[1, 1e-30, 0, 0], [1e-30, 1, 0, 0], [0, 0, 1, 1e-12], [0, 0, 1e-12, 1]])
    a[16] = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    vectors, values = compiled(lambda a: jax.lax.linalg.eigh(a, symmetrize_input=False), a, kernel="eigh")(a)
    scales = np.maximum(np.abs(a).max(axis=(-2, -1), keepdims=True).astype(np.float64), least)
    check_eigen(a / scales, np.asarray(values, np.float64) / scales[..., 0], vectors, dtype)


def test_matrices_that_are_not_finite_have_no_eigenvalues(dtype: str) -> None:
    a = symmetric(3, (37, 5, 5), dtype)
    executable = compiled(jnp.linalg.eigh, a, kernel="eigh")
    good = [np.asarray(result) for result in executable(a)]
    a[7, 2, 1], a[20, 3, 3], a[36, 0, 4] = np.nan, np.inf, -np.inf
    others = [n for n in range(37) if n not in (7, 20, 36)]
    for one, other in zip(executable(a), good, strict=True):
        np.testing.assert_array_equal(np.asarray(one)[others], other[others])
        assert np.isnan(np.asarray(one)[[7, 20, 36]]).all()


def test_eigenvalues_in_loops_mapped_and_differentiated(dtype: str) -> None:
    a = symmetric(4, (40, 3, 3), dtype) + np.diag(np.arange(3, dtype=dtype) * 8)

    def rooted(a: jax.Array) -> jax.Array:
        values, vectors = jnp.linalg.eigh(a)
        return (vectors * jnp.exp(values / 8)[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)

    def program(a: jax.Array) -> Any:
        steps = jax.lax.scan(lambda x, _: (rooted(x) / 4, x[0, 0, 0]), a, None, length=2)[0]
        chosen = jax.lax.cond(a[0, 0, 0] > 100, lambda: a, lambda: jax.vmap(rooted)(a))
        return steps, chosen, jax.grad(lambda a: jnp.linalg.eigvalsh(a)[..., -1].sum())(a)

    got = compiled(program, a, kernel="eigh")(a)
    v = np.linalg.eigh(a.astype(np.float64))[1]

    def exact(x: np.ndarray) -> np.ndarray:
        w, v = np.linalg.eigh(x)
        return (v * np.exp(w / 8)[..., None, :]) @ np.swapaxes(v, -1, -2)

    once = exact(a.astype(np.float64))
    expected = exact(once / 4) / 4, once, v[..., :, -1:] * v[..., None, :, -1]
    for one, true in zip(got, expected, strict=True):
        off = np.abs(np.asarray(one, np.float64) - true).max()
        assert off <= 1e3 * np.finfo(dtype).eps * np.abs(true).max()


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
