"""Counts, and places in sorted arrays, as people write them: one call each, and exactly stock's numbers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from side_by_side import Both, assert_agree, run_both

RNG = np.random.default_rng(23)
COUNT, SEARCH = "own.bincount", "own.searchsorted"
SPECIAL = [np.nan, -np.nan, -np.inf, np.inf, -0.0, 0.0, 1e-40, -1e-40, 3.4e38, -3.4e38]


def kernels(both: Both) -> list[str]:
    return sorted(region.kernel for region in both.report.dispatched)


def numbers(*dims: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(dims).astype(dtype)


def checked(program: Callable, *arguments: Any, expected: list[str], **options: Any) -> Both:
    both = run_both(program, *arguments, as_users_have_it=COUNT in expected, **options)
    assert kernels(both) == expected
    assert_agree(both)
    return both


# --- places -------------------------------------------------------------------------------------------------------


def arrays(dtype: str) -> dict[str, np.ndarray]:
    """Sorted as NumPy sorts, NaN last; and in no order, where a bisection has a result of its own."""
    spread = np.sort(10.0 ** RNG.uniform(-30, 30, 999) * RNG.choice([-1, 1], 999)).astype(dtype)
    return {
        "edges": np.linspace(-4, 4, 101).astype(dtype),
        "two": np.array([-0.5, 0.5], dtype),
        "a power of two": np.sort(numbers(64, dtype=dtype)),
        "of all magnitudes": spread,
        "equal": np.repeat(np.array([-1.0, 0.0, 0.25], dtype), [40, 3, 30]),
        "all equal": np.full(50, 0.25, dtype),
        "with special ones": np.sort(np.concatenate([numbers(50), SPECIAL, SPECIAL]).astype(dtype)),
        "NaN alone": np.full(9, np.nan, dtype),
        "in no order": numbers(200, dtype=dtype),
        "backwards": np.linspace(4, -4, 101).astype(dtype),
    }


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", arrays("float32"))
def test_places(name: str, dtype: str, side: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        array = arrays(dtype)[name]
        wanted = np.concatenate([numbers(4001), SPECIAL, RNG.choice(array, 1000)]).astype(dtype)
        for count in (len(wanted), 700):
            both = checked(lambda a, x: jnp.searchsorted(a, x, side=side), array, wanted[-count:], expected=[SEARCH])
            if name not in ("in no order", "backwards"):
                normal = np.abs(wanted[-count:]) > 1e-30  # what is subnormal XLA's threads may take for 0
                places = np.searchsorted(array, wanted[-count:], side=side)
                np.testing.assert_array_equal(both.dispatched[0][normal], places[normal])


@pytest.mark.parametrize("dims", [(5000,), (3, 1741), (7, 11, 67)])
def test_places_of_arrays(dims: tuple[int, ...]) -> None:
    checked(lambda a, x: jnp.searchsorted(a, x * 2), np.sort(numbers(300)), numbers(*dims), expected=[SEARCH])


def test_interpolation() -> None:
    points = np.sort(numbers(300))
    checked(jnp.interp, numbers(5003), points, points**2, expected=[SEARCH])


def test_searches_under_vmap_in_loops_and_branches() -> None:
    array = np.sort(numbers(100))

    def program(a: jax.Array, x: jax.Array) -> Any:
        rows = jax.vmap(lambda row: jnp.searchsorted(a, row, side="right"))(x)
        steps = jax.lax.scan(lambda y, _: (jnp.sin(y), jnp.searchsorted(a, y)), x, None, length=3)[1]
        chosen = jax.lax.cond(x[0, 0] > 9, lambda: rows, lambda: jnp.searchsorted(a, x + 1))
        return rows, steps, chosen, jax.grad(lambda x: jnp.interp(x, a, a**2).sum())(x)

    both = run_both(program, array, numbers(3, 2001))
    assert SEARCH in kernels(both)
    assert_agree(both)


def test_what_is_no_search_stays() -> None:
    array, wanted = np.sort(numbers(100)), numbers(5000)
    programs: dict[str, Callable] = {
        "arrays of their own": lambda a, x: jax.vmap(jnp.searchsorted)(jnp.stack([a, a * 2]), x.reshape(2, -1)),
        "integers": lambda a, x: jnp.searchsorted((a * 9).astype(int), (x * 9).astype(int)),
        "unrolled": lambda a, x: jnp.searchsorted(a, x, method="scan_unrolled"),
        "another middle": lambda a, x: _bisection(a, x, 3),
        "from another place": lambda a, x: _bisection(a, x, 2, low=1),
    }
    for name, program in programs.items():
        both = run_both(program, array, wanted)
        assert SEARCH not in kernels(both), name
        assert_agree(both)


def _bisection(array: jax.Array, wanted: jax.Array, part: int, low: int = 0) -> jax.Array:
    def step(state: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        low, high = state
        middle = low + (high - low) // part
        is_left = wanted <= array[middle]
        return (jnp.where(is_left, low, middle), jnp.where(is_left, middle, high)), None

    ends = (jnp.full(wanted.shape, end, "uint32") for end in (low, array.size))
    return jax.lax.scan(step, tuple(ends), None, length=7)[0][1]


# --- counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("count", "size"), [(2, 2), (5000, 3), (4099, 1000), (3000, 5000), (200_003, 17)])
def test_counts(count: int, size: int, dtype: str) -> None:
    indices = RNG.integers(-2 * size, 2 * size, count, np.int32)
    indices[0] = np.iinfo(np.int32).min
    indices[-1] = np.iinfo(np.int32).max
    both = checked(lambda i: jnp.zeros(size, dtype).at[i].add(1), indices, expected=[COUNT])
    wrapped = indices.astype(np.int64) + np.where(indices < 0, size, 0)
    kept = wrapped[(wrapped >= 0) & (wrapped < size)]
    np.testing.assert_array_equal(both.dispatched[0], np.bincount(kept, minlength=size))


def test_bincount_and_columns_of_indices() -> None:
    indices = RNG.integers(-3, 60, (4001, 3), np.int32)
    checked(lambda i: jnp.bincount(i[:, 1], length=50), indices, expected=[COUNT])
    checked(lambda i: jnp.zeros(50).at[i[:, 2]].add(1.0), indices, expected=[COUNT])
    with jax.enable_x64(True):
        checked(lambda i: jnp.zeros(50).at[i[:, 0]].add(1.0), indices, expected=[COUNT])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_histogram(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        x = np.concatenate([numbers(5000), [-4, 4, 9, -9, np.nan]]).astype(dtype)
        checked(lambda x: jnp.histogram(x, 100, (-4.0, 4.0)), x, expected=[COUNT, SEARCH])


def test_counts_in_loops_and_frozen_and_from_several_threads() -> None:
    indices = RNG.integers(0, 100, 5000, np.int32)

    def step(total: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return total + jnp.bincount((i + total[3]) % 100, length=100), total[0]

    i = jnp.asarray(indices)
    both = run_both(lambda: jax.lax.scan(step, jnp.zeros(100, jnp.int32), None, length=3), as_users_have_it=True)
    assert_agree(both)
    x = numbers(60_000)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(
            lambda edges, x: jnp.histogram(x, edges)[0], np.linspace(-3, 3, 50, dtype="float32")
        )
        wanted = np.asarray(frozen(x))
        np.testing.assert_array_equal(wanted, np.histogram(x, np.linspace(-3, 3, 50, dtype="float32"))[0])
        with ThreadPoolExecutor(4) as pool:
            for again in pool.map(lambda _: np.asarray(frozen(x)), range(8)):
                np.testing.assert_array_equal(again, wanted)


def test_what_is_no_count_stays() -> None:
    indices, values = RNG.integers(0, 100, 5000, np.int32), numbers(5000)
    programs: dict[str, Callable] = {
        "weights": lambda i, v: jnp.zeros(100).at[i].add(v),
        "twos": lambda i, v: jnp.zeros(100).at[i].add(2.0),
        "another start": lambda i, v: jnp.ones(100).at[i].add(1.0),
        "a maximum": lambda i, v: jnp.zeros(100).at[i].max(1.0),
        "pairs": lambda i, v: jnp.zeros((100, 50)).at[i, i % 50].add(1.0),
        "small integers": lambda i, v: jnp.zeros(100, "int8").at[i].add(1),
    }
    for name, program in programs.items():
        both = run_both(program, indices, values, as_users_have_it=True)
        assert COUNT not in kernels(both), name
        assert_agree(both)
