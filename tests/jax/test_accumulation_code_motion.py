"""Accumulation code motion: what a scan's backward pass accumulates is one product behind it, with the same results."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from products_in_loops import Function, products_in_loops, random

import hlo_dispatch
from hlo_dispatch.ir.module import Module

pytestmark = pytest.mark.usefixtures("_compiled_quickly")


def recurrent(weights: Any, inputs: jax.Array, *, reverse: bool = False) -> jax.Array:
    """A plain recurrent layer, over time-major inputs."""
    w, u, b = weights

    def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(x @ w + h @ u + b)
        return h, h

    return lax.scan(cell, jnp.zeros((inputs.shape[1], u.shape[0]), inputs.dtype), inputs, reverse=reverse)[1]


def weights_of(inputs: int, hidden: int, dtype: Any = jnp.float32) -> tuple[jax.Array, ...]:
    return random(inputs, hidden, dtype=dtype), random(hidden, hidden, dtype=dtype), random(hidden, dtype=dtype)


def gradient(function: Function) -> Function:
    return jax.grad(lambda *arguments: (function(*arguments).astype(jnp.float32) ** 2).sum())


@pytest.mark.parametrize("steps", [3, 7, 64])
@pytest.mark.parametrize(("rows", "inputs", "hidden"), [(8, 16, 32), (5, 13, 17)])
def test_both_gradients_are_products_behind_the_loop(steps: int, rows: int, inputs: int, hidden: int) -> None:
    before, after = products_in_loops(gradient(recurrent), weights_of(inputs, hidden), random(steps, rows, inputs))
    assert after <= before - 2


@pytest.mark.parametrize("steps", [1, 2])
def test_short_scans(steps: int) -> None:
    products_in_loops(gradient(recurrent), weights_of(8, 16), random(steps, 4, 8))


def test_one_row_is_an_outer_product() -> None:
    arguments = weights_of(16, 32), random(9, 1, 16)
    before, after = products_in_loops(gradient(recurrent), *arguments)
    assert after <= before  # broadcasts, not products, were inside


def test_large_sums_of_one_row_leave_small_calls() -> None:
    """The newest XLA runs the loop as one function for one thread, which adds up all of the gradient at each step."""
    arguments = weights_of(520, 510), random(9, 1, 520)
    with hlo_dispatch.enabled(policy="heuristic"):
        report = hlo_dispatch.explain(gradient(recurrent), *arguments)
    (run,) = (run for run in report.passes if run.name == "accumulation code motion")
    assert run.changed
    products_in_loops(gradient(recurrent), *arguments, may_copy=True)


@pytest.mark.parametrize(("rows", "units"), [(8, 32), (5, 17)])
def test_sums_of_widened_rows_are_a_product(rows: int, units: int) -> None:
    arguments = weights_of(16, units, jnp.bfloat16), random(9, rows, 16, dtype=jnp.bfloat16)
    products_in_loops(gradient(recurrent), *arguments)
    with hlo_dispatch.enabled(policy="heuristic"):
        report = hlo_dispatch.explain(gradient(recurrent), *arguments)
    assert report.after is not None
    entry = Module.from_bytes(report.after).entry.instructions
    assert [1, units] in [[*i.shape.dimensions] for i in entry if i.opcode == "dot"]


def test_reversed_scan() -> None:
    function = gradient(lambda w, x: recurrent(w, x, reverse=True))
    before, after = products_in_loops(function, weights_of(16, 32), random(9, 8, 16))
    assert after <= before - 2


def test_half_precision() -> None:
    arguments = weights_of(16, 32, jnp.bfloat16), random(9, 8, 16, dtype=jnp.bfloat16)
    products_in_loops(gradient(recurrent), *arguments)


def test_float64_reference() -> None:
    weights, inputs = weights_of(16, 32), random(64, 8, 16)
    with hlo_dispatch.enabled(policy="always"):
        found = jax.jit(gradient(recurrent))(weights, inputs)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda a: jnp.asarray(np.asarray(a, np.float64)), (weights, inputs))
        expected = gradient_in_float64(*exact)
    for value, wanted in zip(found, expected, strict=True):
        assert np.abs(np.asarray(value, np.float64) - wanted).max() <= 1e-5 * np.abs(wanted).max()


def gradient_in_float64(weights: Any, inputs: Any) -> list[Any]:
    """The gradient of the sum of squares of `recurrent`, in NumPy."""
    w, u, b = (np.asarray(a, np.float64) for a in weights)
    x = np.asarray(inputs, np.float64)
    states = [np.zeros((x.shape[1], u.shape[0]))]
    for row in x:
        states.append(np.tanh(row @ w + states[-1] @ u + b))
    dw, du, db, carried = np.zeros_like(w), np.zeros_like(u), np.zeros_like(b), np.zeros_like(states[0])
    for t in reversed(range(len(x))):
        g = (carried + 2 * states[t + 1]) * (1 - states[t + 1] ** 2)
        dw, du, db, carried = dw + x[t].T @ g, du + states[t].T @ g, db + g.sum(0), g @ u.T
    return [dw, du, db]


def test_checkpointed_body() -> None:
    def function(weights: Any, inputs: jax.Array) -> jax.Array:
        w, u, b = weights
        cell = jax.checkpoint(lambda h, x: (jnp.tanh(x @ w + h @ u + b),) * 2)
        return lax.scan(cell, jnp.zeros((inputs.shape[1], u.shape[0])), inputs)[1]

    before, after = products_in_loops(gradient(function), weights_of(16, 32), random(9, 8, 16))
    assert after <= before - 2


def test_nested_scans() -> None:
    """An inner loop's gradient leaves it, and then the outer one, or stays in the outer one."""

    def function(weights: Any, inputs: jax.Array) -> jax.Array:
        return lax.map(lambda x: recurrent(weights, x), inputs)

    before, after = products_in_loops(gradient(function), weights_of(64, 64), random(4, 3, 2, 64))
    assert after <= before - 2
    products_in_loops(gradient(function), weights_of(16, 32), random(3, 5, 8, 16))


def test_weights_used_twice_in_an_iteration() -> None:
    def function(w: jax.Array, y: jax.Array) -> jax.Array:
        def step(y: jax.Array, _: None) -> tuple[jax.Array, None]:
            middle = y + 0.05 * jnp.tanh(y @ w)
            return y + 0.1 * jnp.tanh(middle @ w), None

        return lax.scan(step, y, None, length=9)[0]

    before, after = products_in_loops(gradient(function), random(32, 32), random(8, 32))
    assert after <= before - 2


def test_an_accumulator_that_is_read_stays() -> None:
    def function(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(total: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            return total + row.T @ jnp.tanh(row @ w), total.sum()

        return lax.scan(step, jnp.zeros((16, 32)), x)

    before, after = products_in_loops(function, random(16, 32), random(9, 8, 16))
    assert after == before


def test_a_sum_that_starts_elsewhere() -> None:
    def function(total: jax.Array, w: jax.Array, x: jax.Array) -> jax.Array:
        return lax.scan(lambda t, row: (t + row.T @ jnp.tanh(row @ w), None), total, x)[0]

    before, after = products_in_loops(function, random(16, 32), random(16, 32), random(9, 8, 16))
    assert after == before - 1


@pytest.mark.parametrize(("rows", "inputs", "units"), [(8, 64, 64), (5, 13, 17)])
def test_gradients_that_are_slices_of_one_product(rows: int, inputs: int, units: int) -> None:
    """Flax's OptimizedLSTMCell joins the weights of its gates ahead of the product."""
    nn = pytest.importorskip("flax.linen")
    layer = nn.RNN(nn.OptimizedLSTMCell(units))
    x = random(rows, 9, inputs)
    variables = layer.init(jax.random.key(0), x)
    before, after = products_in_loops(gradient(layer.apply), variables, x)
    assert after <= before - 2


def test_a_product_of_which_a_slice_is_read_elsewhere_stays() -> None:
    def function(w: jax.Array, x: jax.Array) -> Any:
        def step(state: Any, x: jax.Array) -> tuple[Any, jax.Array]:
            half, h = state
            product = x.T @ jnp.tanh(x @ w + h)
            return (half + product[:, :16], h), product[0, 16:]

        return lax.scan(step, (jnp.zeros((16, 16)), jnp.zeros(32)), x)

    before, after = products_in_loops(function, random(16, 32), random(9, 8, 16))
    assert after == before


def test_an_unknown_trip_count_stays() -> None:
    def function(count: int, w: jax.Array, x: jax.Array) -> jax.Array:
        def step(i: jax.Array, t: jax.Array) -> jax.Array:
            return t + x[i].T @ jnp.tanh(x[i] @ w)

        return lax.fori_loop(0, count, step, jnp.zeros((16, 32)))

    before, after = products_in_loops(function, 5, random(16, 32), random(9, 8, 16))
    assert after == before


def test_mapped_weights_and_branches() -> None:
    batched = jax.vmap(gradient(recurrent))
    weights = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), weights_of(16, 32))
    products_in_loops(batched, weights, random(2, 9, 8, 16))
    shared = jax.vmap(gradient(recurrent), in_axes=(None, 0))
    products_in_loops(shared, weights_of(16, 32), random(2, 9, 8, 16))

    def branched(flag: bool, w: Any, x: jax.Array) -> Any:
        return lax.cond(flag, gradient(recurrent), lambda w, _: w, w, x)

    products_in_loops(branched, True, weights_of(16, 32), random(9, 8, 16))


def test_donated_inputs() -> None:
    """A result in the inputs' buffer is written after the product behind the loop has read them."""

    def step(weights: Any, inputs: jax.Array) -> Any:
        return gradient(recurrent)(weights, inputs), inputs * 2 - 1

    weights, inputs = weights_of(16, 32), random(9, 8, 16)
    expected = jax.jit(step)(weights, inputs)
    jax.clear_caches()
    with hlo_dispatch.enabled(policy="heuristic"):
        found = jax.jit(step, donate_argnums=(0, 1))(jax.tree.map(jnp.copy, weights), jnp.copy(inputs))
    for value, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert float(jnp.abs(value - wanted).max()) <= 1e-5 * float(jnp.abs(wanted).max())
