"""argmax and argmin as people write them: one call, and exactly stock's places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from side_by_side import run_both

RNG = np.random.default_rng(5)


def rows(*dims: int, dtype: str = "float32") -> jax.Array:
    return jnp.asarray(RNG.standard_normal(dims), dtype)


def with_values(count: int, **places: list[int]) -> jax.Array:
    """Numbers below 0, but for those at some places."""
    row = -np.abs(RNG.standard_normal(count)).astype("float32") - 1
    for name, at in places.items():
        row[at] = {"nan": np.nan, "zero": 0.0, "minus_zero": -0.0, "infinity": np.inf}[name]
    return jnp.asarray(row)


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dims", [(128_000,), (1, 1, 32_003), (8, 1, 32_000), (5, 17), (3, 2, 1)])
def test_logits(dims: tuple[int, ...], dtype: str, place_of) -> None:
    found = run_both(lambda x: place_of(x, -1), rows(*dims, dtype=dtype))
    assert found.calls == (0 if dims[-1] == 1 else 1)
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("dims", [(100_003,), (3, 5001), (7, 3)])
def test_doubles_have_places_of_64_bits(dims: tuple[int, ...], place_of) -> None:
    with jax.enable_x64(True):
        # Neighbours in f64 that are equal in f32.
        x = 1 + np.round(RNG.standard_normal(dims), 1) * 1e-12
        found = run_both(lambda x: place_of(x, -1), jnp.asarray(x))
    assert found.calls == 1
    assert found.dispatched[0].dtype == "int64"
    numpys = np.argmax if place_of is jnp.argmax else np.argmin
    np.testing.assert_array_equal(found.dispatched[0], numpys(x, -1))


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("dims", [(100_003,), (3, 5001), (7, 3)])
def test_integers(dims: tuple[int, ...], place_of) -> None:
    lowest, highest = np.iinfo("int32").min, np.iinfo("int32").max
    x = RNG.choice(np.array([lowest, lowest + 1, -1, 0, highest - 1, highest], "int32"), dims)
    found = run_both(lambda x: place_of(x, -1), jnp.asarray(x))
    assert found.calls == 1
    numpys = np.argmax if place_of is jnp.argmax else np.argmin
    np.testing.assert_array_equal(found.dispatched[0], numpys(x, -1))


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1])
def test_all_integers_are_the_worst(value: int, place_of) -> None:
    found = run_both(lambda x: place_of(x, -1), jnp.full((2, 3000), value, "int32"))
    assert found.calls == 1
    np.testing.assert_array_equal(found.dispatched[0], [0, 0])


def test_rounded_numbers_have_ties_that_wider_ones_have_not() -> None:
    with jax.enable_x64(True):
        x = 1 + RNG.standard_normal(5000) * 1e-12
        found = run_both(lambda x: jnp.argmin(x.astype("float32")), jnp.asarray(x))
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])
    assert found.dispatched[0] == x.astype("float32").argmin()


@pytest.mark.parametrize(
    ("dims", "axis"),
    [((1, 32_000, 1), 1), ((3, 700, 1), 1), ((2, 5, 17, 1, 1), 2), ((900, 1), 0), ((2, 1, 50, 1), 2)],
)
def test_dimensions_of_one_element_may_follow(dims: tuple[int, ...], axis: int) -> None:
    """As in the samplers of KerasHub."""
    found = run_both(lambda x: jnp.argmax(x, axis), rows(*dims))
    assert found.calls == 1
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


def test_keras_sampling() -> None:
    def sample(logits, key):
        return jax.random.categorical(key, logits[..., None], shape=(logits.shape[0], 1), axis=1)

    found = run_both(sample, rows(1, 9000), jax.random.PRNGKey(3))
    assert "own.argmax" in found.text
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("count", [5, 70, 5000, 128_000])
@pytest.mark.parametrize(
    "places",
    [
        {"zero": [1, 3]},
        {"minus_zero": [1], "zero": [3]},
        {"zero": [1], "minus_zero": [4]},
        {"infinity": [2, 4]},
        {"nan": [3, 4], "infinity": [1]},
        {"nan": [0, 4]},
        {"nan": [-1], "infinity": [0]},
        {"zero": [-1]},
    ],
)
def test_of_equal_numbers_the_first_and_nan_before_all(count: int, places: dict[str, list[int]], place_of) -> None:
    row = with_values(count, **places)
    # What is larger than all others is smaller with the other sign, which zeros and NaN have too.
    row, numpys = (row, np.argmax) if place_of is jnp.argmax else (-row, np.argmin)
    found = run_both(lambda x: place_of(x, -1), row)
    assert found.calls == 1
    assert found.dispatched[0] == found.stock[0] == numpys(np.asarray(row))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("count", [15, 16, 127, 1023, 1025, 1039, 2048, 4097])
def test_ties_within_a_row_and_across_its_ends(count: int, dtype: str) -> None:
    """Rows of few different numbers, many equal, some NaN, where vectors and blocks of them begin and end."""
    random = np.random.default_rng(count)
    numbers = random.integers(-3, 3, (400, count)).astype("float32")
    numbers[np.arange(400), random.integers(0, count, 400)] += random.integers(0, 2, 400)
    if dtype != "int32":
        numbers[np.arange(0, 400, 3), random.integers(0, count, 134)] = np.nan
    for place_of, numpys in ((jnp.argmax, np.argmax), (jnp.argmin, np.argmin)):
        found = run_both(lambda x, place_of=place_of: place_of(x, -1), jnp.asarray(numbers, dtype))
        assert found.calls == 1
        np.testing.assert_array_equal(found.dispatched[0], numpys(numbers, -1))


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("value", [-jnp.inf, jnp.inf])
def test_all_are_infinite(value: float, place_of) -> None:
    found = run_both(lambda x: place_of(x, -1), jnp.full((3, 5000), value))
    assert found.calls == 1
    np.testing.assert_array_equal(found.dispatched[0], [0, 0, 0])


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
def test_in_loops_and_batches(place_of) -> None:
    def nearest(points, centres):
        def step(best, point):
            place = place_of(jnp.abs(centres - point), -1)
            return best + place, place

        return jax.lax.scan(step, jnp.int32(0), points)

    found = run_both(nearest, rows(5), rows(3000))
    assert "own.argmax" in found.text
    for one, other in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(one, other)
    found = run_both(jax.vmap(lambda x: place_of(x)), rows(7, 3, 501))
    assert "own.argmax" in found.text
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


def test_behind_a_product() -> None:
    """As in a decoding loop, and in a sampler that adds noise to what it compares."""
    noise = rows(4, 5000)
    found = run_both(lambda x, w: jnp.argmax((x @ w) / 0.7 + noise, -1), rows(4, 64), rows(64, 5000))
    assert 'custom_call_target="hlo_dispatch.own.argmax"' in found.text
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


@pytest.mark.parametrize("place_of", [jnp.argmax, jnp.argmin])
def test_places_in_columns_stay_with_stock(place_of) -> None:
    found = run_both(lambda x: place_of(x, 0), rows(40, 500))
    assert "own.argmax" not in found.text
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


def test_numbers_below_the_first_one_to_compare() -> None:
    """A reduction that starts from another number than -inf keeps place 0 where nothing is larger."""
    lowest = float(np.finfo("float32").min)

    def larger(one, other):
        (value, place), (another, its_place) = one, other
        is_larger = (value > another) | jnp.isnan(value)
        is_first = is_larger | ((value == another) & (place < its_place))
        return jnp.where(is_larger, value, another), jnp.where(is_first, place, its_place)

    def place_of_largest(x):
        places = jax.lax.broadcasted_iota("int32", x.shape, 1)
        return jax.lax.reduce((x, places), (jnp.float32(lowest), jnp.int32(0)), larger, (1,))[1]

    found = run_both(place_of_largest, jnp.asarray([[-np.inf, lowest, -np.inf]] * 3000, "float32"))
    np.testing.assert_array_equal(found.dispatched, found.stock)


@pytest.mark.parametrize(("dims", "calls"), [((1, 9000, 1), 1), ((100, 100), 1), ((9000, 10), 0), ((5, 170), 0)])
def test_the_heuristic_takes_long_rows(dims: tuple[int, ...], calls: int) -> None:
    with hlo_dispatch.enabled(policy="heuristic"):
        report = hlo_dispatch.explain(lambda x: jnp.argmax(x, 1), rows(*dims))
    assert len(report.dispatched) == calls
