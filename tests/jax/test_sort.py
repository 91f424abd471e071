"""Sorts as people write them: one call, and exactly stock's order."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from side_by_side import run_both

RNG = np.random.default_rng(6)


def keys(*dims: int) -> jax.Array:
    """With equal ones, zeros of both signs, infinities and NaN of both signs."""
    made = RNG.standard_normal(dims).astype("float32")
    special = np.array([0.0, -0.0, 1.0, 1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-3], "float32")
    places = RNG.random(dims) < 0.3
    made[places] = RNG.choice(special, int(places.sum()))
    return jnp.asarray(made)


def as_bits(array: np.ndarray) -> np.ndarray:
    """NaN and zeros have their bits, too."""
    return array.view(f"i{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def with_places(x: jax.Array, places: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both results are used, and none of them is the program's as it is."""
    numbers, along = jax.lax.sort((x, places), num_keys=1)
    return jnp.abs(numbers), along + 1


@pytest.mark.parametrize("dims", [(1,), (5, 17), (32_000,), (3, 2, 5000), (1, 1, 128_000)])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: jnp.sort(x, -1),
        lambda x: jnp.argsort(x, -1),
        lambda x: with_places(x, jax.lax.broadcasted_iota("int32", x.shape, x.ndim - 1) * 3),
    ],
    ids=["sort", "argsort", "pairs"],
)
def test_rows(program, dims: tuple[int, ...]) -> None:
    found = run_both(program, keys(*dims))
    assert found.calls == (1 if dims[-1] > 1 else 0)
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


def test_a_nucleus_of_tokens() -> None:
    """Top-p sampling without its random number."""

    def kept(logits: jax.Array) -> jax.Array:
        order = jnp.argsort(-logits, -1)
        likely = jnp.take_along_axis(jax.nn.softmax(logits, -1), order, -1)
        return jnp.where(jnp.cumsum(likely, -1) - likely < 0.9, order, -1)

    found = run_both(kept, jnp.asarray(RNG.standard_normal((2, 32_000)), "float32"))
    assert 'custom_call_target="hlo_dispatch.own.sort_with_places"' in found.text
    np.testing.assert_array_equal(found.dispatched[0][:, :1000], found.stock[0][:, :1000])


def in_pairs(x: jax.Array, along: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Neither result is the program's as it is."""
    numbers, along = jax.lax.sort((x, along), num_keys=1)
    return jnp.abs(numbers), -along


@pytest.mark.parametrize(
    ("program", "kernel"),
    [
        (lambda x: jnp.sort(x.view("int32"), -1), "own.sort"),
        (lambda x: in_pairs(x, x * 2), "own.sort_with_places"),
        (lambda x: in_pairs(x.view("int32"), x), "own.sort_with_places"),
        (lambda x: jnp.sort(x, -1, descending=True), "own.sort"),
        (lambda x: jnp.argsort(x, -1, descending=True), "own.sort_with_places"),
        (lambda x: jnp.stack(jax.lax.top_k(x, x.shape[-1])[1:]), "own.sort_with_places"),
    ],
    ids=["integers", "floats along", "integers with floats", "descending", "places descending", "all of the largest"],
)
def test_other_keys_and_orders(program, kernel: str) -> None:
    found = run_both(program, keys(3, 5000))
    assert f"hlo_dispatch.{kernel}" in found.text
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: jnp.sort(x, 0),
        lambda x: jnp.sort(x.astype("bfloat16"), -1).astype("float32"),
        lambda x: jax.lax.sort((x, x), num_keys=2),
        lambda x: jax.lax.sort((x, x, x), num_keys=1),
    ],
    ids=["axis", "halves", "two keys", "two along"],
)
def test_another_sort_stays_with_stock(program) -> None:
    found = run_both(program, keys(40, 500))
    assert "own.sort" not in found.text
    np.testing.assert_array_equal(as_bits(found.dispatched[0]), as_bits(found.stock[0]))


def test_no_keys_at_all() -> None:
    found = run_both(lambda x, y: (jnp.sort(x), *jax.lax.top_k(y, 2)), keys(0), jnp.ones((0, 5)))
    assert [result.shape for result in found.dispatched] == [(0,), (0, 2), (0, 2)]


def few_values(dims: tuple[int, ...], dtype: str) -> jax.Array:
    """Most keys are equal to others: of both signs, zeros, infinities, NaN, and below all normal ones."""
    if dtype == "uint32":
        return jnp.asarray(RNG.integers(0, 2**32, 40, dtype=np.uint32)[RNG.integers(0, 40, dims)])
    values = [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-41, 5e-324, -5e-324]
    return jnp.asarray(np.array(values).astype(dtype)[RNG.integers(0, len(values), dims)])


@pytest.mark.parametrize("dims", [(1, 1000), (37, 100), (16, 1024), (200_001,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint32"])
def test_side_by_side_and_on_all_threads(dims: tuple[int, ...], dtype: str) -> None:
    """Rows in lanes and long ones by pieces: of all types, in both directions, alone and with places."""
    with jax.enable_x64(True):
        found = run_both(
            lambda x: (
                jnp.sort(x, -1),
                jnp.sort(x, -1, descending=True),
                jnp.argsort(x, -1),
                jnp.argsort(x, -1, descending=True),
            ),
            few_values(dims, dtype),
        )
    assert found.calls >= 3  # XLA may turn one around
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_many_lengths(dtype: str) -> None:
    """As many as fill a vector, or all registers, and a few more or less."""
    with jax.enable_x64(True):
        rows = [few_values((2, n), dtype) for n in (2, 8, 17, 33, 64, 127, 129, 256, 300)]
        rows += [jnp.asarray(RNG.standard_normal((2, n)), dtype) for n in (31, 257, 2000)]
        found = run_both(lambda *rows: tuple(jnp.sort(row, -1) for row in rows), *rows)
    assert found.calls == len(rows)
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(as_bits(dispatched), as_bits(stock))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_medians_and_percentiles(dtype: str) -> None:
    """The newest JAX writes them with sorts that keep no order of equal numbers."""

    def program(x: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.median(x, -1), jnp.percentile(x, 90.0), jnp.nanquantile(x, jnp.array([0.1, 0.5]), -1)

    with jax.enable_x64(True):
        x = RNG.standard_normal((40, 101))
        x[3, 7] = np.nan
        found = run_both(program, jnp.asarray(x, dtype))
    assert found.text.count('custom_call_target="hlo_dispatch.own.sort"') == 3
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_allclose(dispatched, stock, rtol=1e-6)


def test_in_loops_branches_and_maps() -> None:
    def program(x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, _: (jnp.sort(-x, -1), None), x, None, length=3)
        x = jax.lax.cond(x.sum() > 0, lambda x: x, lambda x: jnp.sort(x, -1, descending=True), x)
        return jax.vmap(jnp.sort)(x * x)

    found = run_both(program, jnp.asarray(RNG.standard_normal((3, 3000)), "float32"))
    assert "hlo_dispatch.own.sort" in found.text
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


@pytest.mark.parametrize(
    "order",
    [lambda x: x, lambda x: x[::-1], lambda x: x % 17, lambda x: x * 0, lambda x: np.minimum(x, x[::-1]), np.sign],
    ids=["in order", "backwards", "few", "equal", "organ pipe", "nearly equal"],
)
def test_long_rows_in_order_backwards_and_equal(order) -> None:
    x = jnp.asarray(order(np.arange(150_001)), "int32")
    found = run_both(lambda x: (jnp.sort(x), jnp.argsort(x)), x)
    assert found.calls == 2
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(dispatched, stock)


def test_a_permutation() -> None:
    found = run_both(lambda key: jax.random.permutation(key, 70_000), jax.random.PRNGKey(3))
    assert "hlo_dispatch.own.sort_with_places" in found.text
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


@pytest.mark.parametrize(
    "changed",
    [
        lambda order: order,
        lambda order: np.where(order == len(order) - 1, 0, order),
        lambda order: np.where(order == 7, len(order), order),
        lambda order: order - 1,
    ],
    ids=["all", "one twice", "one too large", "one below"],
)
@pytest.mark.parametrize("size", [1, 5, 64, 4099, 70_000])
@pytest.mark.parametrize("along", ["float32", "float64", "int32"])
def test_the_inverse_of_a_permutation(changed, size: int, along: str) -> None:
    """Keys that number all places, or all but one."""
    order = np.stack([changed(RNG.permutation(size)) for _ in range(3)])
    with jax.enable_x64(True):
        values = jnp.asarray(RNG.standard_normal((3, size)) * 99, along)

        def program(order: jax.Array, values: jax.Array) -> tuple[jax.Array, ...]:
            unsigned = jax.lax.sort((order.astype("uint32"), values), num_keys=1)
            return *in_pairs(order, values), *(jnp.flip(-array.astype("float64"), -1) for array in unsigned)

        found = run_both(program, jnp.asarray(order, "int32"), values)
    assert found.text.count("own.sort_with_places") == (2 if size > 1 else 0)
    for dispatched, stock in zip(found.dispatched, found.stock, strict=True):
        np.testing.assert_array_equal(dispatched, stock)


def test_the_heuristic_leaves_few_short_rows() -> None:
    for dims, calls in (((2, 500), 0), ((16, 20), 0), ((64, 100), 1), ((2, 32_000), 1)):
        assert run_both(lambda x: jnp.sort(x, -1), keys(*dims), policy="heuristic").calls == calls
