"""Input product code motion: what a scan multiplies its input with is multiplied ahead of it, with the same results."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from products_in_loops import products_in_loops, random

import hlo_dispatch

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

STEPS = 9


def masked(weights: Any, inputs: jax.Array, *, reverse: bool = False) -> jax.Array:
    """A plain recurrent layer that keeps its state in some steps: no kernel call takes the place of such a loop."""
    w, u, b = weights
    kept = jnp.arange(len(inputs)) % 3 == 1

    def cell(h: jax.Array, given: Any) -> tuple[jax.Array, jax.Array]:
        x, keeps = given
        h = jnp.where(keeps, h, jnp.tanh(x @ w + h @ u + b))
        return h, h

    begin = jnp.zeros((*inputs.shape[1:-1], u.shape[0]), inputs.dtype)
    return lax.scan(cell, begin, (inputs, kept), reverse=reverse)[1]


def weights_of(inputs: int, hidden: int, dtype: Any = jnp.float32) -> tuple[jax.Array, ...]:
    return random(inputs, hidden, dtype=dtype), random(hidden, hidden, dtype=dtype), random(hidden, dtype=dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "hidden"), [(4, 128, 160), (3, 131, 137)])
def test_one_product_leaves_the_loop(rows: int, inputs: int, hidden: int, *, reverse: bool) -> None:
    arguments = weights_of(inputs, hidden), random(STEPS, rows, inputs)
    before, after = products_in_loops(lambda w, x: masked(w, x, reverse=reverse), *arguments)
    assert (before, after) == (2, 1)


@pytest.mark.parametrize("shape", [(1, 1031), (1031,)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_one_row(shape: tuple[int, ...], dtype: Any) -> None:
    arguments = weights_of(1031, 513, dtype), random(STEPS, *shape, dtype=dtype)
    before, after = products_in_loops(masked, *arguments, may_copy=True)
    assert after <= 1 < before


def test_half_precision() -> None:
    arguments = weights_of(256, 136, jnp.bfloat16), random(STEPS, 5, 256, dtype=jnp.bfloat16)
    before, after = products_in_loops(masked, *arguments)
    assert (before, after) == (2, 1)


def test_weights_on_the_left() -> None:
    def function(w: jax.Array, x: jax.Array) -> jax.Array:
        return lax.scan(lambda h, row: ((h := jnp.tanh(w @ row + h)), h), jnp.zeros(len(w)), x)[1]

    assert products_in_loops(function, random(1100, 530), random(STEPS, 530)) == (1, 0)


def test_weights_that_the_body_computes() -> None:
    def function(w: jax.Array, x: jax.Array) -> jax.Array:
        return lax.scan(lambda h, row: ((h := jnp.tanh(row @ jnp.tanh(w) + h)), h), jnp.zeros((2, 150)), x)[1]

    products_in_loops(function, random(130, 150), random(STEPS, 2, 130))


def test_float64_reference() -> None:
    weights, inputs = weights_of(128, 129), random(STEPS, 2, 128)
    with hlo_dispatch.enabled(policy="always"):
        found = np.asarray(jax.jit(masked)(weights, inputs), np.float64)
    w, u, b = (np.asarray(a, np.float64) for a in weights)
    h, expected = np.zeros((2, 129)), []
    for step, x in enumerate(np.asarray(inputs, np.float64)):
        h = h if step % 3 == 1 else np.tanh(x @ w + h @ u + b)
        expected.append(h)
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-5)


def test_a_training_step() -> None:
    def loss(weights: Any, x: jax.Array) -> jax.Array:
        w, u, b = weights
        step = lambda h, row: ((h := jnp.tanh(row @ w + h @ u + b)), h)  # noqa: E731
        return (lax.scan(step, jnp.zeros((2, u.shape[0])), x)[1] ** 2).sum()

    # Left are the state's product, and the gradient's with the transposed weights.
    assert products_in_loops(jax.grad(loss, (0, 1)), weights_of(128, 160), random(STEPS, 2, 128))[1] <= 3
    assert products_in_loops(jax.grad(loss), weights_of(128, 160), random(STEPS, 2, 128))[1] == 2


def test_in_other_programs() -> None:
    """Below vmap, in a loop, in a branch, of remat; every number is checked."""
    arguments = weights_of(128, 130), random(STEPS, 2, 128)

    def repeated(weights: Any, x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, x: masked(weights, x)[..., :128], x)

    def branched(weights: Any, x: jax.Array) -> jax.Array:
        return lax.cond(x[0, 0, 0] > -9, masked, lambda _, x: jnp.zeros((STEPS, 2, 130)), weights, x)

    products_in_loops(repeated, *arguments)
    products_in_loops(branched, *arguments)
    products_in_loops(jax.vmap(masked, (None, 2), 2), arguments[0], random(STEPS, 2, 3, 128))
    products_in_loops(jax.grad(lambda w, x: jax.checkpoint(masked)(w, x).sum()), *arguments)


def test_a_frozen_program_and_a_donated_argument() -> None:
    weights, inputs = weights_of(128, 130), random(STEPS, 2, 128)
    with hlo_dispatch.enabled(policy="never"):
        expected = np.asarray(jax.jit(lambda *a: masked(*a))(weights, inputs))
    frozen = hlo_dispatch.freeze(masked, weights)
    with hlo_dispatch.enabled(policy="always"):
        np.testing.assert_allclose(frozen(inputs), expected, atol=1e-5)
        twice = jax.jit(lambda w, x: (masked(w, x), x + 1), donate_argnums=1)(weights, inputs + 0)
    np.testing.assert_allclose(twice[0], expected, atol=1e-5)
    np.testing.assert_array_equal(twice[1], np.asarray(inputs) + 1)


@pytest.mark.parametrize(("steps", "rows"), [(3, 2), (STEPS, 64)])
def test_what_reads_no_fewer_bytes_stays(steps: int, rows: int) -> None:
    """Few iterations, or rows so many that their results are as large as the weights."""
    with hlo_dispatch.enabled(policy="heuristic"):
        report = hlo_dispatch.explain(masked, weights_of(128, 160), random(steps, rows, 128))
    (run,) = (run for run in report.passes if run.name == "input product code motion")
    assert not run.changed


def test_results_larger_than_what_the_loop_carries_stay() -> None:
    """A scan over pieces is how programs limit their memory."""

    def function(w: jax.Array, x: jax.Array) -> jax.Array:
        return lax.scan(lambda total, row: (total + jnp.exp(row @ w).sum(), None), jnp.float32(0), x)[0]

    assert products_in_loops(function, random(256, 8192), random(600, 1, 256)) == (1, 1)


def test_a_recurrent_layer_is_one_call() -> None:
    def function(weights: Any, x: jax.Array) -> jax.Array:
        w, u, b = weights
        step = lambda h, row: ((h := jnp.tanh(row @ w + h @ u + b)), h)  # noqa: E731
        return lax.scan(step, jnp.zeros((2, u.shape[0])), x)[1]

    with hlo_dispatch.enabled(policy="always"):
        report = hlo_dispatch.explain(function, weights_of(128, 160), random(STEPS, 2, 128))
    assert [region.entry for region in report.dispatched] == ["recurrent"]
