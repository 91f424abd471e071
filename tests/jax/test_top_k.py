"""The largest of rows: one call, and exactly stock's order."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_sort import as_bits, keys

from side_by_side import run_both

CALL = 'custom_call_target="hlo_dispatch.own.top_k"'


def largest(x: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Both results are used, and none of them is the program's as it is."""
    values, places = jax.lax.top_k(x, count)
    return jnp.negative(values), places + 1


@pytest.mark.parametrize(
    ("dims", "count"),
    [
        ((5,), 1),
        ((17,), 4),
        ((3, 257), 256),
        ((2, 3, 5000), 312),
        ((32_000,), 50),
        ((1, 128_000), 40),
        ((2, 4100), 300),
    ],
)
def test_rows(dims: tuple[int, ...], count: int) -> None:
    found = run_both(lambda x: largest(x, count), keys(*dims))
    assert CALL in found.text
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


@pytest.mark.parametrize(("dims", "count"), [((5,), 1), ((3, 257), 200), ((2, 3, 5000), 50), ((1, 33_000), 40)])
def test_rows_of_f64(dims: tuple[int, ...], count: int) -> None:
    """XLA sorts whole rows for them."""
    with jax.enable_x64(True):
        rows = keys(*dims).astype("float64") * (1 + 1e-12)
        found = run_both(lambda x: largest(x, count), rows)
        places = run_both(lambda x: jax.lax.top_k(x, count)[1], rows)
    for one in (found, places):
        assert CALL in one.text
        for dispatched, stock in zip(one.dispatched, one.stock, strict=True):
            np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


@pytest.mark.parametrize(
    ("dims", "count"), [((1, 32_000), 50), ((3, 257), 1), ((2, 3, 500), 17), ((33,), 32), ((2, 4100), 300)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_last_of_the_largest_alone(dims: tuple[int, ...], count: int, dtype: str) -> None:
    """A slice behind the largest: XLA then sorts whole rows, of f32, too."""

    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, _ = jax.lax.top_k(x, count)
        return jnp.where(x < values[..., -1:], -jnp.inf, x), x - jax.lax.top_k(-x, count)[0][..., count // 2 :][..., :1]

    with jax.enable_x64(dtype == "float64"):
        found = run_both(program, jnp.asarray(keys(*dims), dtype))
    assert found.text.count(CALL) == 2
    assert "own.sort" not in found.text
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


def test_a_sort_of_which_more_is_used_stays_one() -> None:
    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, places = jax.lax.top_k(x, x.shape[-1])
        return values[:, :3] + values[:, 3:6], places[:, :3]

    with jax.enable_x64(True):
        found = run_both(program, jnp.asarray(keys(4, 500), "float64"))
    assert "own.sort_with_places" in found.text
    np.testing.assert_array_equal(as_bits(found.dispatched[0]), as_bits(found.stock[0]))
    np.testing.assert_array_equal(found.dispatched[1], found.stock[1])


@pytest.mark.parametrize("made", [np.arange, lambda size: -np.arange(size), np.zeros, lambda size: np.arange(size) % 7])
def test_rows_that_rise_fall_and_stay(made) -> None:
    """Where every number is above the bound, or none but the first."""
    found = run_both(lambda x: largest(x, 40), jnp.asarray(made(5003), "float32"))
    assert found.calls == 1
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


def test_both_results_are_those_of_the_program() -> None:
    """The call's tuple is the program's result then, or a branch's."""
    x = keys(3, 5000)
    whole = run_both(lambda x: jax.lax.top_k(x, 50), x)

    def largest_or_smallest(is_largest, x):
        return jax.lax.cond(is_largest, lambda x: jax.lax.top_k(x, 50), lambda x: jax.lax.top_k(-x, 50), x)

    branches = [run_both(largest_or_smallest, jnp.asarray(is_largest), x) for is_largest in (True, False)]
    for found in (whole, *branches):
        assert CALL in found.text
        for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
            np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


def test_in_loops_and_branches() -> None:
    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            values, places = jax.lax.top_k(x, 20)
            return x.at[jnp.arange(2)[:, None], places].set(-values), places

        x, places = jax.lax.scan(step, x, None, length=3)
        largest = jax.lax.cond(x.sum() > 0, lambda x: x, lambda x: jax.lax.top_k(x, 9)[0].sum() + x, x)
        return jax.vmap(lambda row: jax.lax.top_k(row, 5)[1])(largest), places

    found = run_both(program, jnp.asarray(np.random.default_rng(0).standard_normal((2, 3000)), "float32"))
    assert found.text.count(CALL) >= 3
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(dispatched, stock)


def test_the_gradient() -> None:
    found = run_both(jax.grad(lambda x: jax.lax.top_k(x, 3)[0].sum()), jnp.arange(4000.0))
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


@pytest.mark.parametrize(
    "program",
    [lambda x: largest(x.view("int32"), 3), lambda x: largest(x.astype("bfloat16"), 3)],
    ids=["integers", "halves"],
)
def test_other_types_stay_with_stock(program) -> None:
    found = run_both(program, keys(4, 500))
    assert "own.top_k" not in found.text
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(dispatched.astype("float32"), stock.astype("float32"))


def test_the_heuristic_leaves_short_rows() -> None:
    for length, calls in ((500, 0), (32_000, 1)):
        assert run_both(lambda x: largest(x, 20), keys(2, length), policy="heuristic").calls == calls
