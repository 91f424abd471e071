"""Recurrent layers with a constant added to one gate inside the loop, as a forget gate's bias is often written: one
call, with the numbers of float64 NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from recurrent_layers import arguments, lstm_in_float64, only_call

from side_by_side import assert_agree, run_both

pytestmark = pytest.mark.usefixtures("_compiled_quickly")


def _lstm(x, h, c, wx, wh, b, constants: tuple[float, ...] = (0.0, 1.0, 0.0, 0.0)):
    """Gates i, f, g, o, the constants added behind the bias."""

    def step(state, x):
        h, c = state
        gates = jnp.split(x @ wx + h @ wh + b, 4, -1)
        i, f, g, o = (gate + constant if constant else gate for gate, constant in zip(gates, constants, strict=True))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), x)


def _shifted(b, units: int, constants: tuple[float, ...]) -> np.ndarray:
    return np.asarray(b, np.float64) + np.repeat(constants, units)


@pytest.mark.parametrize(
    ("rows", "constants"), [(1, (0, 1.0, 0, 0)), (3, (0, -0.75, 0, 0)), (4, (2.0, 0, 0, 0)), (1, (0, 0, 0.25, 0))]
)
def test_lstm_with_a_constant_of_one_gate(rows: int, constants: tuple[float, ...]) -> None:
    x, h, c, wx, wh, b = arguments(5, rows, 7, 13)
    both = run_both(lambda *given: _lstm(*given, constants), x, h, c, wx, wh, b)
    only_call(both, "lstm(x, h, c)")
    wanted = lstm_in_float64(x, h, c, wx, wh, _shifted(b, 13, constants))
    for one, other in zip(both.dispatched, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_without_any_other_bias_and_mapped() -> None:
    """Haiku's LSTM without its bias: gates i, g, f, o."""
    x, h, c, wx, wh, _ = arguments(4, 2, 5, 9)

    def layer(x, h, c, wx, wh):
        def step(state, x):
            h, c = state
            i, g, f, o = jnp.split(jnp.concatenate([x, h], -1) @ jnp.concatenate([wx, wh]), 4, -1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(step, (h, c), x)

    both = run_both(layer, x, h, c, wx, wh)
    only_call(both, "lstm(x, h, c)")
    constant = _shifted(np.zeros(36), 9, (0, 0, 1.0, 0))
    wanted = lstm_in_float64(x, h, c, wx, wh, constant, order="igfo")
    for one, other in zip(both.dispatched, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_gru_whose_candidate_has_a_constant() -> None:
    x, h, _, wx, wh, b = arguments(4, 3, 5, 8, gates=3)

    def layer(x, h, wx, wh, b):
        def step(h, x):
            (r, z, n), (hr, hz, hn) = (jnp.split(both, 3, -1) for both in (x @ wx + b, h @ wh))
            z = jax.nn.sigmoid(z + hz)
            h = z * h + (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + hr) * (hn + 0.5))
            return h, h

        return lax.scan(step, h, x)

    both = run_both(layer, x, h, wx, wh, b)
    only_call(both, "gru(x, h)")
    assert_agree(both)


@pytest.mark.parametrize("place", ["outside", "inside twice"])
def test_other_constants_are_no_bias(place: str) -> None:
    """A constant behind the activation, or in two gates, is not taken for one gate's."""
    given = arguments(4, 2, 5, 8)

    def layer(x, h, c, wx, wh, b):
        if place == "inside twice":
            return _lstm(x, h, c, wx, wh, b, (0.5, 1.0, 0.0, 0.0))

        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
            c = (jax.nn.sigmoid(f) + 0.1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(step, (h, c), x)

    both = run_both(layer, *given)
    assert_agree(both)
    assert all(region.kernel != "onednn.recurrent" for region in both.report.dispatched)
