"""Products of a sparse matrix and a dense one, as BCOO and code by hand have them: one call, in order of entries."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

import hlo_dispatch
from side_by_side import assert_close, run_both

KERNEL = "own.sparse_product"


def entries(count: int, rows: int, columns: int, *, ordered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(count)
    places = np.stack([random.integers(0, rows, count), random.integers(0, columns, count)], 1).astype(np.int32)
    if ordered:
        places = places[np.argsort(places[:, 0], kind="stable")]
    return random.standard_normal(count).astype(np.float32), places


def dense(*dims: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(len(dims)).standard_normal(dims).astype(dtype)


def exact(values: Any, places: Any, matrix: Any, rows: int) -> np.ndarray:
    """What is inside, in float64; indices below 0 count from the end."""
    found, matrix = np.zeros((rows, matrix.shape[1])), np.asarray(matrix, np.float64)
    pairs = zip(np.asarray(places, np.int64).T, (rows, len(matrix)), strict=True)
    row, column = (np.where(index < 0, index + size, index) for index, size in pairs)
    kept = (row >= 0) & (row < rows) & (column >= 0) & (column < len(matrix))
    np.add.at(found, row[kept], np.asarray(values, np.float64)[kept, None] * matrix[column[kept]])
    return found


def times(rows: int, columns: int, **flags: bool) -> Callable:
    return lambda values, places, matrix: sparse.BCOO((values, places), shape=(rows, columns), **flags) @ matrix


def checked(program: Callable, *arguments: Any, expected: Any = None, tolerance: float = 1e-5) -> Any:
    both = run_both(program, *arguments, as_users_have_it=True)
    assert KERNEL in {region.kernel for region in both.report.dispatched}
    assert_close(both.dispatched[0], np.asarray(both.stock[0]), tolerance)
    if expected is not None:
        assert_close(both.dispatched[0].astype(np.float64), expected, tolerance)
    return both


@pytest.mark.parametrize("ordered", [False, True], ids=["", "ordered"])
@pytest.mark.parametrize(("count", "rows", "columns", "width"), [(2, 3, 2, 2), (40, 9, 7, 5), (300, 50, 33, 16),
                                                                 (2000, 130, 70, 67), (5000, 3, 400, 64)])  # fmt: skip
def test_products(count: int, rows: int, columns: int, width: int, ordered: bool) -> None:
    values, places = entries(count, rows, columns, ordered=ordered)
    matrix = dense(columns, width)
    checked(times(rows, columns), values, places, matrix, expected=exact(values, places, matrix, rows))


def test_double() -> None:
    values, places = entries(700, 60, 50)
    with jax.enable_x64(True):
        wide, matrix = values.astype(np.float64), dense(50, 19, dtype="float64")
        checked(times(60, 50), wide, places, matrix, expected=exact(wide, places, matrix, 60), tolerance=1e-13)


def test_indices_outside_as_stock_has_them() -> None:
    """BCOO leaves such entries out; those below 0 count from the end, and 0 times infinity is no number."""
    values, places = entries(400, 40, 30)
    places[::7, 0], places[1::7, 1], places[2::7, 0], places[3::7, 1] = 40, 30, -3, -30
    places[4::21], places[5::21], places[6::21] = -41, 2**31 - 1, -(2**31)
    matrix = dense(30, 33)
    checked(times(40, 30), values, places, matrix, expected=exact(values, places, matrix, 40))
    places[8], values[8] = (3, 77), np.inf
    both = run_both(times(40, 30), values, places, matrix, as_users_have_it=True)
    np.testing.assert_array_equal(np.isnan(both.dispatched[0]), np.isnan(both.stock[0]))
    assert np.isnan(both.dispatched[0][3]).all()


@pytest.mark.parametrize("mode", ["fill", "clip", "promise_in_bounds"])
def test_by_hand(mode: str) -> None:
    def program(values: Any, places: Any, matrix: Any) -> Any:
        gathered = matrix.at[places[:, 1]].get(mode=mode)
        return jnp.zeros((40, 33)).at[places[:, 0]].add(values[:, None] * gathered)

    values, places = entries(400, 40, 30)
    matrix = dense(30, 33)
    checked(program, values, places, matrix, expected=exact(values, places, matrix, 40))
    if mode != "promise_in_bounds":
        places[::9, 1] = 31
        both = run_both(program, values, places, matrix, as_users_have_it=True)
        assert_close(both.dispatched[0], both.stock[0], 1e-5)


def test_rows_that_nothing_is_added_to_are_zero() -> None:
    values, places = entries(30, 500, 20, ordered=True)
    checked(times(500, 20), values, places, dense(20, 8), expected=exact(values, places, dense(20, 8), 500))


def test_in_loops_under_conditions_and_differentiated() -> None:
    values, places = entries(300, 30, 30)
    matrix = dense(30, 16)
    product = times(30, 30)

    def program(values: Any, places: Any, matrix: Any) -> Any:
        steps = jax.lax.scan(lambda x, _: (product(values, places, x) / 8, x[0, 0]), matrix, None, length=3)[0]
        chosen = jax.lax.cond(matrix[0, 0] > 9, lambda: matrix, lambda: product(values, places, matrix))
        return steps, chosen, jax.grad(lambda m: (product(values, places, m) ** 2).sum())(matrix)

    both = checked(program, values, places, matrix)
    for found, stock in zip(both.dispatched, both.stock, strict=True):
        assert_close(found, stock, 1e-4)


def test_frozen_and_from_several_threads() -> None:
    """A result does not depend on how many threads there are: the rows are each thread's own."""
    values, places = entries(60_000, 700, 500)
    matrices = [dense(500, 64) * number for number in range(1, 5)]
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda entries, matrix: times(700, 500)(*entries, matrix), (values, places))
        wanted = [np.asarray(frozen(matrix)) for matrix in matrices]
    for matrix, one in zip(matrices, wanted, strict=True):
        assert_close(one.astype(np.float64), exact(values, places, matrix, 700), 1e-5)
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda matrix: [np.asarray(frozen(matrix)) for _ in range(3)], matrices)
        for one, several in zip(wanted, found, strict=True):
            for again in several:
                np.testing.assert_array_equal(again, one)


def test_what_is_no_such_product_stays() -> None:
    values, places = entries(50, 20, 20)
    matrix, start = dense(20, 8), dense(20, 8)
    programs: dict[str, Callable] = {
        "another start": lambda v, p, m: jnp.asarray(start).at[p[:, 0]].add(v[:, None] * m[p[:, 1]]),
        "a maximum": lambda v, p, m: jnp.zeros((20, 8)).at[p[:, 0]].max(v[:, None] * m[p[:, 1]]),
        "another index": lambda v, p, m: jnp.zeros((20, 8)).at[p[:, 0] * 2].add(v[:, None] * m[p[:, 1]]),
        "bf16": lambda v, p, m: times(20, 20)(v.astype("bfloat16"), p, m.astype("bfloat16")),
        "a value for each number": lambda v, p, m: jnp.zeros((20, 8)).at[p[:, 0]].add(m[p[:, 1]] * m[p[:, 0]]),
        "gathered rows that are read, too": lambda v, p, m: (
            (g := v[:, None] * m[p[:, 1]]), jnp.zeros((20, 8)).at[p[:, 0]].add(g)
        ),
    }  # fmt: skip
    for name, program in programs.items():
        both = run_both(program, values, places, matrix, as_users_have_it=True)
        assert KERNEL not in {region.kernel for region in both.report.dispatched}, name
        assert_close(both.dispatched[0], both.stock[0], 2e-2)
