"""Our own LU of small matrices: every number of vectors of rows, both orders, and what cannot be factored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lu_checks import check_factors

import hlo_dispatch
from hlo_dispatch.selection import family_cost_models, linear_algebra_cost_model
from processor import needs_avx512
from side_by_side import QUICKLY, run_both

pytestmark = needs_avx512
# A vector holds 16 rows (f32) or 8 (f64); four, or eight, of them are kept in registers.
ROWS = (1, 7, 8, 9, 16, 17, 31, 40, 47, 48, 49, 64)


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(family_cost_models, "by_expected_speed", lambda match, _: sorted(match.kernels))
    monkeypatch.setattr(
        family_cost_models, "is_worth_calling_library", lambda match, _: (match.kernel == "blocked.lu", "under test")
    )
    with jax.enable_x64(True):
        yield request.param


def compiled(program: Callable, *arguments: np.ndarray) -> Any:
    with hlo_dispatch.enabled(policy="heuristic"):
        executable = jax.jit(lambda *inputs: program(*inputs)).lower(*arguments).compile(QUICKLY)
    assert executable.as_text().count('custom_call_target="hlo_dispatch.blocked.lu"') == 1
    return executable


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("more", [-3, 0, 5])
@pytest.mark.parametrize("by_column", [False, True])
def test_factors(dtype: str, rows: int, more: int, by_column: bool) -> None:
    shape = (5, rows, max(1, rows + more))
    a = np.random.default_rng().standard_normal(shape).astype(dtype)
    given = np.swapaxes(a, -1, -2).copy() if by_column else a
    # Without the permutation, which is XLA's own loop over our pivots and takes it longest to compile.
    executable = compiled(lambda a: jax.lax.linalg.lu(jnp.swapaxes(a, -1, -2) if by_column else a)[:2], given)
    lu, pivots = map(np.asarray, executable(given))
    check_factors(a, lu, permuted(pivots, rows))
    assert np.all(pivots >= np.arange(pivots.shape[-1]))


def permuted(pivots: np.ndarray, rows: int) -> np.ndarray:
    """The order of the rows, for each matrix, after the exchanges that its pivots stand for."""
    order = np.tile(np.arange(rows), (len(pivots), 1))
    for one, exchanges in zip(order, pivots, strict=True):
        for row, other in enumerate(exchanges):
            one[[row, other]] = one[[other, row]]
    return order


def test_pivots_are_stocks_also_where_two_are_as_large(dtype: str) -> None:
    a = np.random.default_rng().integers(-3, 4, (40, 21, 21)).astype(dtype)
    lu, pivots, permutation = map(np.asarray, compiled(jax.lax.linalg.lu, a)(a))
    stock = [np.asarray(result) for result in jax.jit(jax.lax.linalg.lu)(a)]
    # From where rounding has made two candidates equal or unequal on, either choice is right.
    agree = np.all(pivots == stock[1], axis=-1)
    assert agree.mean() > 0.5
    assert np.all(pivots[:, 0] == stock[1][:, 0])
    np.testing.assert_array_equal(permutation[agree], stock[2][agree])
    check_factors(a, lu, permutation)


@pytest.mark.parametrize("size", [6, 17, 64])
def test_singular_matrices_are_reported_as_stocks_are(dtype: str, size: int) -> None:
    a = np.random.default_rng(size).standard_normal((4, size, size)).astype(dtype)
    a[0] = 0
    a[1, :, size // 2] = 0
    a[2, size // 2] = 0
    both = run_both(lambda a: jnp.linalg.slogdet(a), a, policy="heuristic")
    for stock, got in zip(both.stock, both.dispatched, strict=True):
        np.testing.assert_allclose(got, stock, rtol=1e-3)
    stock = jax.jit(jax.lax.linalg.lu)(a)
    got = compiled(jax.lax.linalg.lu, a)(a)
    np.testing.assert_array_equal(np.asarray(got[1]), np.asarray(stock[1]))


@pytest.fixture
def inverses(dtype: str, compiled_once: dict[str, tuple[Callable, Callable]]) -> tuple[Callable, Callable]:
    """jnp.linalg.inv by stock and by our LU, compiled for the first test of an element type and kept for the rest."""
    if dtype not in compiled_once:
        a = np.zeros((3, 9, 9), dtype)
        compiled_once[dtype] = jax.jit(jnp.linalg.inv).lower(a).compile(QUICKLY), compiled(jnp.linalg.inv, a)
    return compiled_once[dtype]


@pytest.fixture(scope="module")
def compiled_once() -> dict[str, tuple[Callable, Callable]]:
    return {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (0, 8), (8, 0), (5, 3), (8, 8)], ids=str)
def test_what_is_not_finite_does_not_vanish(dtype: str, value: float, place: tuple[int, int], inverses) -> None:
    stock_inverse, inverse = inverses
    a = np.random.default_rng(1).standard_normal((3, 9, 9)).astype(dtype)
    good = np.asarray(inverse(a))
    a[(1, *place)] = value
    stock = np.asarray(stock_inverse(a))
    got = np.asarray(inverse(a))
    np.testing.assert_array_equal(got[[0, 2]], good[[0, 2]])
    # A whole row or column divided by infinity is 0, in LAPACK's factors as in ours.
    assert np.isfinite(got[1]).all() == np.isfinite(stock[1]).all()
    assert np.all(np.isnan(got[1]) >= np.isnan(stock[1]))


def test_tiny_and_huge_pivots(dtype: str) -> None:
    least, most = np.finfo(dtype).smallest_normal, np.finfo(dtype).max
    a = np.array([[[4 * least, 1], [2 * least, 1]], [[most, 1], [most / 2, 1]]], dtype)
    lu = np.asarray(compiled(jax.lax.linalg.lu, a)(a)[0])
    np.testing.assert_array_equal(lu, np.array([[[4 * least, 1], [0.5, 0.5]], [[most, 1], [0.5, 0.5]]], dtype))


def test_from_several_threads(dtype: str) -> None:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((50, 33, 33)).astype(dtype) for _ in range(4)]
    executable = compiled(jax.lax.linalg.lu, inputs[0])
    alone = [np.asarray(executable(a)[0]) for a in inputs]

    def repeated(a: np.ndarray) -> list[np.ndarray]:
        with jax.enable_x64(True):  # a setting of the thread
            return [np.asarray(executable(a)[0]) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(repeated, inputs))
    for wanted, several in zip(alone, together, strict=True):
        for got in several:
            np.testing.assert_array_equal(got, wanted)


def test_more_rows_are_left_to_the_libraries() -> None:
    rows = linear_algebra_cost_model.MOST_LU_ROWS + 1
    a = np.random.default_rng(0).standard_normal((20, rows, rows)).astype(np.float32)
    with hlo_dispatch.enabled(policy="heuristic"):
        text = jax.jit(jax.lax.linalg.lu).lower(a).compile().as_text()
    assert "hlo_dispatch.blocked.lu" not in text
