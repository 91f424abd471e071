"""Recurrent layers as people write them: one call over the sequence, with the numbers of float64 NumPy."""

from __future__ import annotations

import threading
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from recurrent_layers import arguments, lstm, lstm_in_float64, only_call, random_inputs

import hlo_dispatch
from side_by_side import assert_agree, run_both

pytestmark = pytest.mark.usefixtures("_compiled_quickly")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("steps", "rows", "inputs", "units"), [(2, 1, 7, 13), (5, 3, 5, 17), (5, 8, 33, 64), (64, 2, 3, 31)]
)
def test_lstm(steps: int, rows: int, inputs: int, units: int, reverse: bool) -> None:
    given = arguments(steps, rows, inputs, units)
    both = run_both(lambda *a: lstm(*a, reverse=reverse), *given)
    only_call(both, "lstm(x, h, c)")
    for got, wanted in zip(both.dispatched, lstm_in_float64(*given, reverse=reverse), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("order", ["igfo", "oifg", "gofi"])
def test_gates_in_any_order(order: str) -> None:
    given = arguments(4, 2, 6, 10)
    both = run_both(lambda *a: lstm(*a, order=order), *given)
    only_call(both, "lstm(x, h, c)")
    for got, wanted in zip(both.dispatched, lstm_in_float64(*given, order=order), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


def test_input_products_ahead_of_the_loop() -> None:
    def program(x, h, c, wx, wh, b):
        def cell(state, p):
            h, c = state
            i, f, g, o = jnp.split(p + h @ wh, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(cell, (h, c), x @ wx + b)

    given = arguments(6, 3, 7, 10)
    both = run_both(program, *given)
    assert "onednn.recurrent" in {region.kernel for region in both.report.dispatched}
    for got, wanted in zip(both.dispatched, lstm_in_float64(*given), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("cell", "formula"),
    [
        ("OptimizedLSTMCell", "lstm(x, h, c)"),
        ("LSTMCell", "lstm(x, h, c)"),
        ("GRUCell", "gru(x, h)"),
        ("SimpleCell", "tanh(x·w + h·u)"),
    ],
)
def test_flax(cell: str, formula: str, rows: int) -> None:
    layer = nn.RNN(getattr(nn, cell)(12))
    (x,) = random_inputs((rows, 7, 5))
    variables = layer.init(jax.random.key(0), x)
    both = run_both(lambda v, x: layer.apply(v, x), variables, x)
    only_call(both, formula)
    assert_agree(both)


def _gru(update: Callable, x, h, wx, wh, b, bh):
    def step(h, x):
        xr, xz, xn = jnp.split(x @ wx + b, 3, -1)
        hr, hz, hn = jnp.split(h @ wh + bh, 3, -1)
        z = jax.nn.sigmoid(xz + hz)
        h = update(z, h, jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn))
        return h, h

    return lax.scan(step, h, x)


@pytest.mark.parametrize("update", [lambda z, h, n: z * h + (1 - z) * n, lambda z, h, n: (1 - z) * h + z * n])
def test_gru_in_both_conventions(update: Callable) -> None:
    given = random_inputs((6, 3, 5), (3, 9), (5, 27), (9, 27), (27,), (27,))
    both = run_both(lambda *a: _gru(update, *a), *given)
    only_call(both, "gru(x, h)")
    assert_agree(both)


def test_plain_cell_with_relu_and_the_last_state_alone() -> None:
    def program(x, h, w, u):
        return lax.scan(lambda h, x: (jax.nn.relu(x @ w.T + h @ u.T), None), h, x)[0]

    both = run_both(program, *random_inputs((5, 2, 4), (2, 6), (6, 4), (6, 6)))
    only_call(both, "relu(x·w + h·u)")
    assert_agree(both)


def test_a_batch_by_vmap_and_matrix_times_vector() -> None:
    def program(x, w, u, b):
        def step(h, x):
            h = jnp.tanh(w @ x + u @ h + b)
            return h, h

        return lax.scan(step, jnp.zeros(9), x)[1]

    x, *rest = random_inputs((4, 6, 5), (9, 5), (9, 9), (9,))
    for both in (run_both(program, x[0], *rest), run_both(jax.vmap(program, (0, None, None, None)), x, *rest)):
        only_call(both, "tanh(x·w + h·u)")
        assert_agree(both)


def test_nan_stays_in_its_row() -> None:
    x, *rest = arguments(4, 3, 5, 20)
    both = run_both(lstm, x.at[1, 2, 0].set(jnp.nan), *rest)
    only_call(both, "lstm(x, h, c)")
    for stock, dispatched in zip(both.stock, both.dispatched, strict=True):
        np.testing.assert_array_equal(np.isnan(stock), np.isnan(dispatched))


def test_in_a_branch_and_donated() -> None:
    x, h, c, *weights = arguments(4, 3, 5, 12)

    def program(p, x, h, c, *weights):
        return lax.cond(p, lambda: lstm(x, h, c, *weights)[0], lambda: (h, c))

    both = run_both(program, jnp.array(True), x, h, c, *weights, donate_argnums=(2, 3))
    assert [region.kernel for region in both.report.dispatched] == ["onednn.recurrent"]
    assert_agree(both)


def test_two_threads() -> None:
    given = arguments(16, 4, 8, 40)
    wanted = lstm_in_float64(*given)
    with hlo_dispatch.enabled(policy="always"):
        program = jax.jit(lstm).lower(*given).compile()
    failures: list[BaseException] = []

    def repeat() -> None:
        try:
            for _ in range(20):
                for got, right in zip(jax.tree.leaves(program(*given)), wanted, strict=True):
                    np.testing.assert_allclose(got, right, rtol=0, atol=1e-5)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=repeat) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def _refusal(program: Callable, *given) -> str:
    both = run_both(program, *given)
    assert_agree(both)
    (region,) = (region for region in both.report.regions if region.opcode in ("while", "call"))
    assert region.refusal is not None
    return str(region.refusal)


def test_masks_stay_with_xla() -> None:
    x, h, c, wx, wh, b = arguments(5, 3, 4, 8)

    def program(x, mask, h, c, wx, wh, b):
        def cell(state, given):
            x, keep = given
            h, c = state
            i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
            c2 = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h2 = jax.nn.sigmoid(o) * jnp.tanh(c2)
            keep = keep[:, None]
            return (jnp.where(keep, h2, h), jnp.where(keep, c2, c)), h2

        return lax.scan(cell, (h, c), (x, mask))

    mask = jnp.asarray(np.random.default_rng().random((5, 3)) < 0.7)
    assert "stay" in _refusal(program, x, mask, h, c, wx, wh, b)


def test_what_a_gradient_keeps_is_refused() -> None:
    given = arguments(5, 3, 4, 8)
    both = run_both(jax.grad(lambda *a: lstm(*a)[1].sum()), *given)
    refused = [str(region.refusal) for region in both.report.regions if region.opcode == "while"]
    assert any("of every step" in sentence for sentence in refused)
    assert_agree(both)


def test_beside_a_loop_that_carries_a_single_number() -> None:
    """XLA gives such a loop no tuple."""

    def program(x: jax.Array, n: jax.Array) -> jax.Array:
        first = lax.while_loop(lambda i: i < 2, lambda i: i * 2 + 1, n)
        return lax.dynamic_slice(x, (first, 0), (3, 33)) @ x.T

    both = run_both(program, np.random.default_rng().standard_normal((17, 33)).astype(np.float32), np.int32(1))
    assert both.calls == 1
    assert_agree(both)
