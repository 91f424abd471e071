"""Recurrent layers in half precision, with constants, of joined products, with a reset gate ahead of its product, and
inside other loops: one call each, with the numbers of float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from recurrent_layers import arguments, lstm, lstm_in_float64, only_call, random_inputs

import hlo_dispatch
from side_by_side import Both, assert_agree, run_both

pytestmark = pytest.mark.usefixtures("_compiled_quickly")


def assert_close(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> None:
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float64), other, rtol=0, atol=tolerance)


def assert_close_in(dtype, got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> None:
    """In half precision few elements of many steps are off by several roundings, so their mean is held narrowly and
    each one widely: of 60 random layers of 16 steps the worst mean was 0.0043 (stock XLA's 0.0124), the worst element
    0.038 (0.22)."""
    if dtype == jnp.float32:
        return assert_close(got, wanted, 1e-5)
    for one, other in zip(got, wanted, strict=True):
        error = np.asarray(one, np.float64) - other
        assert np.sqrt(np.mean(np.square(error))) <= 1e-2
        assert np.max(np.abs(error)) <= 0.1


# --- half precision -------------------------------------------------------------------------------


def half(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    return [array.astype(jnp.bfloat16) for array in arrays]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("steps", "rows", "inputs", "units"), [(2, 1, 7, 13), (5, 3, 5, 17), (16, 8, 32, 64)])
def test_half_precision(steps: int, rows: int, inputs: int, units: int, reverse: bool) -> None:
    given = half(arguments(steps, rows, inputs, units))
    both = run_both(lambda *a: lstm(*a, reverse=reverse), *given)
    only_call(both, "lstm(x, h, c)")
    assert 'weights_type = "bf16"' in both.text
    assert_close_in(jnp.bfloat16, both.dispatched, lstm_in_float64(*given, reverse=reverse))


@pytest.mark.parametrize("rows", [1, 4])
def test_state_in_f32(rows: int) -> None:
    """Weights and inputs are half precision; each step rounds the state ahead of its product."""
    x, h, c, wx, wh, b = arguments(6, rows, 8, 24)
    x, wx, wh, b = half((x, wx, wh, b))

    def program(x, h, c, wx, wh, b):
        def step(state, x):
            h, c = state
            gates = (x @ wx).astype(jnp.float32) + (h.astype(jnp.bfloat16) @ wh).astype(jnp.float32) + b
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(step, (h, c), x)

    both = run_both(program, x, h, c, wx, wh, b)
    only_call(both, "lstm(x, h, c)")
    assert 'weights_type = "bf16"' in both.text
    assert_close_in(jnp.bfloat16, both.dispatched, lstm_in_float64(x, h, c, wx, wh, b))


def test_cell_state_in_f32_beside_a_half_precision_state() -> None:
    x, h, c, wx, wh, b = arguments(6, 3, 8, 24)
    x, h, wx, wh, b = half((x, h, wx, wh, b))

    def program(x, h, c, wx, wh, b):
        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split((x @ wx + h @ wh + b).astype(jnp.float32), 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = (jax.nn.sigmoid(o) * jnp.tanh(c)).astype(jnp.bfloat16)
            return (h, c), h

        return lax.scan(step, (h, c), x)

    both = run_both(program, x, h, c, wx, wh, b)
    only_call(both, "lstm(x, h, c)")
    assert_close_in(jnp.bfloat16, both.dispatched, lstm_in_float64(x, h, c, wx, wh, b))


# --- weights closed over, directions, frameworks' spellings ---------------------------------------


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_weights_closed_over(dtype) -> None:
    x, h, c, *weights = (array.astype(dtype) for array in arguments(5, 3, 7, 24))
    numbers = [np.asarray(array) for array in weights]
    both = run_both(lambda x, h, c: lstm(x, h, c, *numbers), x, h, c)
    only_call(both, "lstm(x, h, c)")
    assert_close_in(dtype, both.dispatched, lstm_in_float64(x, h, c, *weights))


def test_weights_of_each_gate_closed_over() -> None:
    x, h = random_inputs((5, 3, 7), (3, 12))
    w, u = ([np.asarray(a) for a in random_inputs(*[(n, 12)] * 4)] for n in (7, 12))

    def program(x, h, c):
        def step(state, x):
            h, c = state
            i, f, g, o = (x @ one + h @ other for one, other in zip(w, u, strict=True))
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(step, (h, c), x)

    both = run_both(program, x, h, h)
    only_call(both, "lstm(x, h, c)")
    joined = (np.concatenate(parts, 1) for parts in (w, u))
    assert_close(both.dispatched, lstm_in_float64(x, h, h, *joined, np.zeros(48)), 1e-5)


def joined_lstm(x, h, c, w, b):
    """With one product of input and state, side by side."""

    def step(state, x):
        h, c = state
        i, g, f, o = jnp.split(jnp.concatenate([x, h], -1) @ w + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("rows", [1, 3])
def test_one_product_of_input_and_state(rows: int, dtype) -> None:
    given = [a.astype(dtype) for a in random_inputs((5, rows, 7), (rows, 12), (rows, 12), (19, 48), (48,))]
    both = run_both(joined_lstm, *given)
    only_call(both, "lstm(x, h, c)")
    x, h, c, w, b = (np.asarray(array, np.float64) for array in given)
    wanted = lstm_in_float64(x, h, c, w[:7], w[7:], b, order="igfo")
    assert_close_in(dtype, both.dispatched, wanted)


def gru_reset_first(x, h, wx, wh, b, *, keeps_by_update: bool, reverse: bool = False):
    """Keras' with reset_after=False, Haiku's: the reset gate scales the state ahead of the candidate's product."""
    units = h.shape[-1]

    def step(h, x):
        xz, xr, xn = jnp.split(x @ wx + b, 3, -1)
        z = jax.nn.sigmoid(xz + h @ wh[:, :units])
        r = jax.nn.sigmoid(xr + h @ wh[:, units : 2 * units])
        n = jnp.tanh(xn + (r * h) @ wh[:, 2 * units :])
        h = z * h + (1 - z) * n if keeps_by_update else (1 - z) * h + z * n
        return h, h

    return lax.scan(step, h, x, reverse=reverse)


def gru_reset_first_in_float64(x, h, wx, wh, b, *, keeps_by_update: bool, reverse: bool = False) -> list[np.ndarray]:
    x, h, wx, wh, b = (np.asarray(array, np.float64) for array in (x, h, wx, wh, b))
    every, u = np.zeros((*x.shape[:2], h.shape[1])), np.split(wh, 3, -1)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        xz, xr, xn = np.split(x[t] @ wx + b, 3, -1)
        z, r = (1 / (1 + np.exp(-(own + h @ of_state))) for own, of_state in ((xz, u[0]), (xr, u[1])))
        n = np.tanh(xn + (r * h) @ u[2])
        h = every[t] = z * h + (1 - z) * n if keeps_by_update else (1 - z) * h + z * n
    return [h, every]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("keeps_by_update", [True, False])
@pytest.mark.parametrize(("steps", "rows", "inputs", "units"), [(2, 1, 7, 13), (5, 3, 5, 17), (9, 8, 33, 64)])
def test_gru_that_resets_first(steps, rows, inputs, units, keeps_by_update, dtype) -> None:
    shapes = (steps, rows, inputs), (rows, units), (inputs, 3 * units), (units, 3 * units), (3 * units,)
    given = [array.astype(dtype) for array in random_inputs(*shapes)]
    options = {"keeps_by_update": keeps_by_update, "reverse": rows == 3}
    both = run_both(lambda *a: gru_reset_first(*a, **options), *given)
    only_call(both, "gru_reset_first(x, h)")
    wanted = gru_reset_first_in_float64(*given, **options)
    assert_close(both.dispatched, wanted, 2e-5 if dtype == jnp.float32 else 8e-2)


def test_both_directions() -> None:
    given, other = arguments(7, 3, 5, 16), arguments(7, 3, 5, 16)[1:]

    def program(x, forwards, backwards):
        (h, _), every = lstm(x, *forwards)
        (g, _), reversed_ = lstm(x, *backwards, reverse=True)
        return h, g, jnp.concatenate([every, reversed_], -1)

    both = run_both(program, given[0], given[1:], other)
    assert [region.kernel for region in both.report.dispatched] == ["onednn.recurrent"] * 2
    assert " while(" not in both.text
    h, _, every = lstm_in_float64(*given)
    g, _, reversed_ = lstm_in_float64(given[0], *other, reverse=True)
    assert_close(both.dispatched, [h, g, np.concatenate([every, reversed_], -1)], 1e-5)


@pytest.mark.parametrize("cell", ["OptimizedLSTMCell", "GRUCell"])
def test_flax_in_both_directions(cell: str) -> None:
    nn = pytest.importorskip("flax.linen")
    layers = (nn.RNN(getattr(nn, cell)(12)) for _ in range(2))
    layer = nn.Bidirectional(*layers)
    (x,) = random_inputs((3, 7, 5))
    variables = layer.init(jax.random.key(0), x)
    both = run_both(lambda v, x: layer.apply(v, x), variables, x)
    assert [region.kernel for region in both.report.dispatched] == ["onednn.recurrent"] * 2
    assert_agree(both)


def test_frozen() -> None:
    x, h, c, *weights = arguments(6, 3, 24, 24)
    layer = hlo_dispatch.freeze(lambda w, x, h, c: lstm(x, h, c, *w), weights)
    with hlo_dispatch.enabled(policy="always"):
        assert_close(jax.tree.leaves(layer(x, h, c)), lstm_in_float64(x, h, c, *weights), 1e-5)


# --- around it ------------------------------------------------------------------------------------


def test_inside_another_scan() -> None:
    """A stack of layers with weights of their own: the call is in the outer loop's body."""
    x, *_ = random_inputs((5, 3, 16))
    w, u, b = random_inputs((4, 16, 16), (4, 16, 16), (4, 16))

    def program(x, w, u, b):
        def layer(x, weights):
            w, u, b = weights

            def step(h, x):
                h = jnp.tanh(x @ w + h @ u + b)
                return h, h

            return lax.scan(step, jnp.zeros((3, 16)), x)[1], None

        return lax.scan(layer, x, (w, u, b))[0]

    both = run_both(program, x, w, u, b)
    assert [region.kernel for region in both.report.dispatched] == ["onednn.recurrent"]
    assert_agree(both)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_mapped(dtype) -> None:
    """A batch of sequences through one layer, which jax.vmap makes the rows of."""
    x, h, c, *weights = (array.astype(dtype) for array in arguments(6, 4, 5, 16))
    mapped = jax.vmap(lambda x, h, c: lstm(x, h, c, *weights), (1, 0, 0), ((0, 0), 1))
    both = run_both(mapped, x, h, c)
    assert [region.kernel for region in both.report.dispatched] == ["onednn.recurrent"]
    assert_close_in(dtype, both.dispatched, lstm_in_float64(x, h, c, *weights))


# --- what stays with XLA, and says so -------------------------------------------------------------


def sentence_of(both: Both) -> str:
    assert_agree(both)
    refused = [r for r in both.report.regions if r.opcode in ("while", "call") and r.refusal is not None]
    return " ".join(str(region.refusal) for region in refused)


def refused(program: Callable, *given) -> str:
    return sentence_of(run_both(program, *given))


def test_two_layers_in_one_loop() -> None:
    def program(x, w, u, v):
        def step(state, x):
            one, two = state
            one = jnp.tanh(x @ w + one @ u)
            two = jnp.tanh(one @ v + two @ u)
            return (one, two), two

        zeros = jnp.zeros((2, 8))
        return lax.scan(step, (zeros, zeros), x)[1]

    assert "2 states" in refused(program, *random_inputs((5, 2, 8), (8, 8), (8, 8), (8, 8)))


def test_weights_that_change_with_the_step() -> None:
    def program(x, w, u):
        def step(h, given):
            x, u = given
            h = jnp.tanh(x @ w + h @ w + h @ u)
            return h, h

        return lax.scan(step, jnp.zeros((2, 8)), (x, u))[1]

    assert "no weights that all steps share" in refused(program, *random_inputs((5, 2, 8), (8, 8), (5, 8, 8)))


def test_lengths_stay_with_xla() -> None:
    def program(lengths, x, h, c, *weights):
        def step(state, given):
            number, x = given
            (new, memory), every = lstm(x[None], *state, *weights)
            is_longer = (number < lengths)[:, None]
            state = jnp.where(is_longer, new, state[0]), jnp.where(is_longer, memory, state[1])
            return state, every[0]

        return lax.scan(step, (h, c), (jnp.arange(len(x)), x))

    sentence = refused(program, jnp.array([2, 5, 3]), *arguments(5, 3, 4, 8))
    assert "stay with XLA" in sentence
