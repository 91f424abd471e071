"""Our own LU of large matrices: both types and orders, wide and tall, and what cannot be factored."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import blocked_kernels
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lu_checks import check_factors

from processor import needs_avx512

pytestmark = needs_avx512
compiled = partial(blocked_kernels.compiled, kernel="lu")


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    blocked_kernels.choose_blocked(monkeypatch)
    with jax.enable_x64(True):
        yield request.param


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns"), [(65, 65), (96, 96), (97, 200), (200, 97), (150, 49), (301, 301), (144, 48), (500, 500)]
)
def test_factors(rows: int, columns: int, by_column: bool, dtype: str) -> None:
    a = np.random.default_rng(rows).standard_normal((2, columns, rows) if by_column else (2, rows, columns))
    a = a.astype(dtype)
    program = (lambda x: jax.lax.linalg.lu(x.mT)) if by_column else jax.lax.linalg.lu
    lu, _, permutation = map(np.asarray, compiled(program, a)(a))
    check_factors(a.swapaxes(1, 2) if by_column else a, lu, permutation)


def test_pivots_are_the_largest_and_stocks(dtype: str) -> None:
    """In f64 as LAPACK has them, where no two are as large."""
    a = np.random.default_rng(3).standard_normal((260, 260)).astype(dtype)
    lu, pivots, _ = map(np.asarray, compiled(jax.lax.linalg.lu, a)(a))
    assert np.abs(np.tril(lu, -1)).max() <= 1
    if dtype == "float64":
        stock = jax.jit(jax.lax.linalg.lu)(a)
        np.testing.assert_array_equal(pivots, stock[1])
        np.testing.assert_allclose(lu, stock[0], atol=1e-10)


def test_systems(dtype: str) -> None:
    random = np.random.default_rng(4)
    a, x = (random.standard_normal((310, 310)) for _ in range(2))
    a += 20 * np.eye(310)
    a, b = a.astype(dtype), (a @ x).astype(dtype)
    found = np.asarray(compiled(jnp.linalg.solve, a, b)(a, b))
    assert np.abs(found - x).max() <= 500 * np.finfo(dtype).eps * np.abs(x).max()
    sign, logarithm = map(np.asarray, compiled(jnp.linalg.slogdet, a)(a))
    expected = np.linalg.slogdet(a.astype(np.float64))
    assert sign == expected[0]
    np.testing.assert_allclose(logarithm, expected[1], rtol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("column", [0, 47, 48, 100, 199])
def test_columns_of_zeros_and_equal_rows(column: int, dtype: str) -> None:
    """A pivot of 0 is passed over, as LAPACK does."""
    a = np.random.default_rng(5).standard_normal((200, 200)).astype(dtype)
    a[:, column] = 0
    lu, _, permutation = map(np.asarray, compiled(jax.lax.linalg.lu, a)(a))
    check_factors(a[None], lu[None], permutation[None])
    a = np.ones((200, 200), dtype)
    lu, _, permutation = map(np.asarray, compiled(jax.lax.linalg.lu, a)(a))
    check_factors(a[None], lu[None], permutation[None])


@pytest.mark.parametrize("place", [(0, 0), (150, 70), (70, 150), (199, 199), (60, 47)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_spreads(place: tuple[int, int], value: float, dtype: str) -> None:
    """Where stock has a solution that is none, so has ours; and it ends."""
    a = np.random.default_rng(6).standard_normal((200, 200)).astype(dtype)
    a[place] = value
    b = np.ones((200, 1), dtype)
    found = np.asarray(compiled(jnp.linalg.solve, a, b)(a, b))
    assert np.isnan(found).any() == np.isnan(np.asarray(jax.jit(jnp.linalg.solve)(a, b))).any()


def test_threads_give_the_same_bits(dtype: str) -> None:
    inputs = [np.random.default_rng(seed).standard_normal((300, 300)).astype(dtype) for seed in range(3)]
    executable = compiled(jax.lax.linalg.lu, inputs[0])
    alone = [np.asarray(executable(a)[0]) for a in inputs]

    def repeated(a: np.ndarray) -> list[np.ndarray]:
        with jax.enable_x64(True):  # a setting of the thread
            return [np.asarray(executable(a)[0]) for _ in range(5)]

    with ThreadPoolExecutor(3) as pool:
        for wanted, several in zip(alone, pool.map(repeated, inputs), strict=True):
            for got in several:
                np.testing.assert_array_equal(got, wanted)
