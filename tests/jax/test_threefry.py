"""The hash of jax.random as people draw numbers: one call, and exactly stock's numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_dispatch
from side_by_side import Both, run_both

CALL = 'custom_call_target="hlo_dispatch.own.threefry2x32"'
KEY = np.array([7, 123456789], np.uint32)


def assert_same(found: Both, calls: int = 1) -> None:
    assert found.text.count(CALL) == calls
    for stock, dispatched in zip(found.stock, found.dispatched, strict=True):
        np.testing.assert_array_equal(dispatched, stock)


@pytest.mark.parametrize("dims", [(1024,), (4099,), (3, 5, 211), (1, 70_001)], ids=str)
@pytest.mark.parametrize(
    "draw", [jax.random.bits, jax.random.uniform, jax.random.normal, jax.random.gumbel], ids=lambda draw: draw.__name__
)
def test_numbers(draw, dims: tuple[int, ...]) -> None:
    """Whole vectors and remainders, divided among threads."""
    assert_same(run_both(lambda key: draw(key, dims), KEY))


def test_numbers_of_64_bits() -> None:
    with jax.enable_x64(True):
        assert_same(run_both(lambda key: jax.random.uniform(key, (2000,), "float64"), KEY))


@pytest.mark.parametrize("partitionable", [False, True])
def test_both_ways_to_count(partitionable: bool) -> None:
    with jax.threefry_partitionable(partitionable):
        assert_same(run_both(lambda key: jax.random.bits(key, (2, 2051)), KEY))


def test_a_key_that_is_constant() -> None:
    found = run_both(lambda x: x + jax.random.normal(jax.random.key(3), x.shape), np.ones((50, 60), np.float32))
    assert found.text.count(CALL) <= 1  # XLA may compute it while it compiles
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


def test_few_numbers_stay() -> None:
    """Keys that are split are not worth a call."""
    assert_same(run_both(lambda key: jax.random.split(jax.random.fold_in(key, 5), 8), KEY), calls=0)


def test_two_draws() -> None:
    def program(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, second = jax.random.split(key)
        return jax.random.uniform(first, (2048,)), jax.random.bernoulli(second, 0.3, (2048,))

    assert_same(run_both(program, KEY), calls=2)


def scanned(key: jax.Array) -> jax.Array:
    return lax.scan(lambda k, i: (k + np.uint32(1), jax.random.uniform(k, (1500,)) * i), key, jnp.arange(3.0))[1]


def counted(key: jax.Array) -> jax.Array:
    state = (key, jnp.zeros(1500))
    return lax.while_loop(lambda s: s[1][0] < 2, lambda s: (s[0] * 3, s[1] + jax.random.uniform(s[0], (1500,))), state)[
        1
    ]


def chosen(key: jax.Array) -> jax.Array:
    return lax.cond(key[0] > 3, lambda: jax.random.uniform(key, (1500,)), lambda: jnp.ones(1500))


def graded(key: jax.Array) -> jax.Array:
    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * x, 0.0))

    return jax.grad(loss)(jnp.linspace(0.0, 1.0, 1500))


@pytest.mark.parametrize("program", [scanned, counted, chosen, graded], ids=lambda program: program.__name__)
def test_inside_of(program) -> None:
    assert_same(run_both(program, KEY))


def test_side_by_side() -> None:
    """Of several keys XLA's loop keeps arrays of keys: it stays."""
    keys = np.arange(6, dtype=np.uint32).reshape(3, 2)
    found = run_both(jax.vmap(lambda key: jax.random.uniform(key, (700,))), keys)
    np.testing.assert_array_equal(found.dispatched[0], found.stock[0])


@pytest.mark.parametrize(("rotation", "iterations"), [(14, 5), (13, 4), (13, 6)])
def test_another_hash_stays(rotation: int, iterations: int) -> None:
    """With one other rotation, or fewer rounds."""
    rotations = [np.array([rotation, 15, 26, 6], np.uint32), np.array([17, 29, 16, 24], np.uint32)]

    def step(i: jax.Array, state):
        x, y, keys, (now, then) = state
        for bits in now:
            x = x + y
            y = ((y << bits) | (y >> (np.uint32(32) - bits))) ^ x
        x, y = x + keys[0], y + keys[1] + jnp.asarray(i + 1, np.uint32)
        return x, y, [*keys[1:], keys[0]], [then, now]

    def program(words: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        return lax.fori_loop(0, iterations, step, (words[0], words[1], list(keys), rotations))[:2]

    words = np.random.default_rng(0).integers(0, 1 << 32, (2, 1500), np.uint32)
    assert_same(run_both(program, words, np.array([1, 2, 3], np.uint32)), calls=0)
    assert_same(run_both(lambda key: jax.random.bits(key, (1500,)), KEY))


def test_it_is_measured_like_any_other() -> None:
    """XLA's loop may write over the words that it starts with: alone, it is given copies of them."""
    with hlo_dispatch.enabled(policy="measure"):
        report = hlo_dispatch.explain(lambda key: jax.random.bits(key, (1000, 1000)), KEY)
    (region,) = report.candidates
    assert region.kernel == "own.threefry2x32", region
