"""Cumulative sums and their like as people write them: one call, no further from float64 than stock."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from side_by_side import run_both

RNG = np.random.default_rng(11)
ALONG = {
    lax.cumsum: np.cumsum,
    lax.cumprod: np.cumprod,
    lax.cummax: np.maximum.accumulate,
    lax.cummin: np.minimum.accumulate,
    lax.cumlogsumexp: np.logaddexp.accumulate,
}


def lines(*dims: int, dtype: str = "float32") -> jax.Array:
    """Numbers around 1, whose products stay in range; integers wrap around."""
    made = 1 + 0.2 * RNG.standard_normal(dims)
    return jnp.asarray((made * 1e9).astype(dtype) if dtype == "int32" else made.astype(dtype))


def exact(function, x: jax.Array, axis: int, *, reverse: bool = False) -> np.ndarray:
    wide = np.asarray(x)
    wide = wide.astype(np.float64) if wide.dtype.kind == "f" else wide
    with np.errstate(all="ignore"):
        found = ALONG[function](np.flip(wide, axis) if reverse else wide, axis=axis)
    found = np.flip(found, axis) if reverse else found
    return found if wide.dtype.kind == "f" else found.astype(wide.dtype)


def assert_right(found, expected: np.ndarray, tolerance: float = 2e-6) -> None:
    assert found.text.count('custom_call_target="hlo_dispatch.own.cumulative_') == 1
    got, stock = found.dispatched[0], found.stock[0]
    assert got.dtype == stock.dtype
    if got.dtype.kind == "i":
        np.testing.assert_array_equal(got, stock)
    np.testing.assert_allclose(got.astype(expected.dtype), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("dims", "axis"), [((17,), 0), ((5000,), 0), ((3, 256), 1), ((1, 67), 1), ((100, 35), 0), ((2, 33, 5), 1)]
)
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reversed"])
@pytest.mark.parametrize("function", [lax.cumsum, lax.cummax], ids=["sum", "maximum"])
def test_shapes(function, dims: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = lines(*dims)
    found = run_both(lambda x: function(x, axis=axis, reverse=reverse), x)
    assert_right(found, exact(function, x, axis, reverse=reverse))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("function", ALONG, ids=lambda function: function.__name__)
def test_operations(function, dtype: str) -> None:
    if function is lax.cumlogsumexp and dtype == "int32":
        return
    x = lines(5, 300, dtype=dtype)
    found = run_both(lambda x: function(x, axis=1), x)
    assert_right(found, exact(function, x, 1))


@pytest.mark.parametrize("function", ALONG, ids=lambda function: function.__name__)
def test_doubles(function) -> None:
    with jax.enable_x64(True):
        x = lines(3, 70, dtype="float64")
        found = run_both(lambda x: function(x, axis=1), x)
        assert_right(found, exact(function, x, 1), 1e-13)


@pytest.mark.parametrize("function", ALONG, ids=lambda function: function.__name__)
def test_what_is_no_number(function) -> None:
    """Each special number, behind others and ahead of them, on lines of their own."""
    specials = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, 1e-37]
    made = np.asarray(lines(2 * len(specials) + 1, 64)).copy()
    for row, special in enumerate(specials):
        made[2 * row, 20] = made[2 * row + 1, [3, 40]] = special
    made[-1, [5, 50]] = np.inf, -np.inf
    x = jnp.asarray(made)
    found = run_both(lambda x: function(x, axis=1), x)
    with np.errstate(all="ignore"):
        expected = exact(function, x, 1).astype("float32")
    # XLA's threads take numbers below all normal ones for 0.
    np.testing.assert_allclose(found.dispatched[0], expected, rtol=1e-5, atol=2e-38)


def test_a_long_line_in_pieces_is_as_exact_as_a_short_one() -> None:
    x = jnp.asarray(RNG.standard_normal(1 << 20), "float32")
    found = run_both(lambda x: (jnp.cumsum(x), lax.cumsum(x, reverse=True)), x)
    assert found.text.count('custom_call_target="hlo_dispatch.own.cumulative_sum"') == 2
    for got, reverse in zip(found.dispatched, (False, True), strict=True):
        expected = exact(lax.cumsum, x, 0, reverse=reverse)
        assert np.abs(got - expected).max() < 2e-6 * np.abs(expected).max()


def test_in_loops_branches_and_batches() -> None:
    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            summed = jnp.cumsum(x, 1)
            return summed / 400, summed[:, -1]

        x, totals = lax.scan(step, x, None, length=3)
        x = lax.cond(totals.sum() > 0, lambda x: lax.cummax(x, 1), lambda x: x, x)
        return jax.vmap(lambda row: lax.cumsum(row, reverse=True))(x), totals

    found = run_both(program, lines(4, 400))
    assert found.text.count('custom_call_target="hlo_dispatch.own.cumulative_') >= 3
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_allclose(dispatched, stock, rtol=1e-5, atol=1e-5)


def test_the_gradient_is_one_from_the_end() -> None:
    found = run_both(jax.grad(lambda x: (jnp.cumsum(x) ** 2).sum()), lines(2000))
    assert found.text.count('custom_call_target="hlo_dispatch.own.cumulative_sum"') == 2
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], rtol=1e-4)


def test_of_what_is_computed_and_read_further() -> None:
    """As with masks: what is accumulated is no array, and neither is the result."""
    x = lines(3, 500)
    found = run_both(lambda x: jnp.cumsum(x > 1, 1) * 2 - 1, x)
    assert found.calls == 1
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


def test_halves_are_accumulated_in_f32() -> None:
    x = lines(3, 300).astype("bfloat16")
    found = run_both(lambda x: jnp.cumsum(x, 1), x)
    assert_right(found, exact(lax.cumsum, x.astype("float32"), 1), 5e-3)


def _clipped(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where((a > 60) & (a < 1e30), a, jnp.logaddexp(a, b))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: lax.cummax(x.astype("uint32"), axis=1),
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 7), (1, 1), ((0, 0), (6, 0))),
        lambda x: lax.reduce_window(x, 1.0, lax.add, (1, 64), (1, 1), ((0, 0), (63, 0))),
        lambda x: lax.reduce_window(80 * x, -np.float32(np.inf), _clipped, (1, 64), (1, 1), ((0, 0), (63, 0))),
    ],
    ids=["unsigned", "a moving sum", "another start", "another function of large numbers"],
)
def test_others_stay_with_stock(program) -> None:
    found = run_both(program, lines(3, 64))
    assert "own.cumulative" not in found.text
    np.testing.assert_allclose(found.dispatched[0].astype("float32"), found.stock[0].astype("float32"), rtol=1e-6)


def test_the_cost_model_leaves_few_elements() -> None:
    for length, calls in ((100, 0), (20_000, 1)):
        found = run_both(lambda x: jnp.cumsum(x), lines(length), policy="heuristic")
        assert found.calls == calls
