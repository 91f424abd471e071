"""Recurrent layers in plain JAX, scans over a sequence [length, batch, size]: an LSTM, PyTorch's GRU, and the GRU that
resets the state in front of its product (the paper's; Haiku's), which PyTorch and OpenVINO's converter do not have."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

GATES = {"lstm": 4, "gru": 3, "resetgru": 3}
SPELLINGS = ("inside", "hoisted", "transposed")
"""The input's product in the loop, or one product ahead of it; weights as PyTorch has them, in the loop."""
_RATE = 1e-3


@dataclass(frozen=True)
class RecurrentCase:
    """One layer at one shape."""

    cell: str
    size: int
    batch: int
    length: int
    dtype: str
    spelling: str = "inside"

    @property
    def name(self) -> str:
        spelling = "" if self.spelling == "inside" else f" {self.spelling}"
        return f"{self.cell} {self.size} {self.dtype} batch {self.batch} length {self.length}{spelling}"


def arrays(case: RecurrentCase) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Weights [gates * size, size] with their biases, as PyTorch has them, and the sequence, in f32."""
    random = np.random.default_rng(0)
    rows = GATES[case.cell] * case.size

    def uniform(*shape: int) -> np.ndarray:
        return (random.random(shape, np.float32) * 2 - 1) * case.size**-0.5

    weights = {
        "input": uniform(rows, case.size), "state": uniform(rows, case.size), "input_bias": uniform(rows),
        "state_bias": uniform(rows),
    }  # fmt: skip
    return weights, random.standard_normal((case.length, case.batch, case.size), np.float32)


def in_jax(case: RecurrentCase) -> tuple[Callable[..., Any], dict[str, Any], Any]:
    """The layer as a function of weights and sequence, and both."""
    import jax.numpy as jnp

    dtype = {"f32": "float32", "bf16": "bfloat16"}[case.dtype]
    given, sequence = arrays(case)
    if case.spelling != "transposed":
        given = {name: array.T if array.ndim == 2 else array for name, array in given.items()}
    weights = {name: jnp.asarray(array, dtype) for name, array in given.items()}
    cell = {"lstm": _lstm, "gru": _gru, "resetgru": _reset_gru}[case.cell]

    def product(x: Any, w: Any) -> Any:
        return x @ w.T if case.spelling == "transposed" else x @ w

    def of_gates(w: Any, begin: int, end: int) -> Any:
        columns = slice(begin * case.size, end * case.size)
        return w[columns] if case.spelling == "transposed" else w[..., columns]

    def layer(weights: dict[str, Any], sequence: Any) -> Any:
        import jax

        def inputs(x: Any) -> Any:
            return product(x, weights["input"]) + weights["input_bias"]

        def of_state(h: Any, begin: int = 0, end: int = GATES[case.cell]) -> Any:
            bias = weights["state_bias"][begin * case.size : end * case.size]
            return product(h, of_gates(weights["state"], begin, end)) + bias

        is_hoisted = case.spelling == "hoisted"
        zeros = jnp.zeros(sequence.shape[1:], sequence.dtype)

        def body(state: Any, x: Any) -> Any:
            state = cell(x if is_hoisted else inputs(x), of_state, *state)
            return state, state[0]

        begin = (zeros, zeros) if case.cell == "lstm" else (zeros,)
        return jax.lax.scan(body, begin, inputs(sequence) if is_hoisted else sequence)[1]

    return layer, weights, jnp.asarray(sequence, dtype)


def training_step(layer: Callable[..., Any]) -> Callable[..., Any]:
    """(weights, sequence) → weights after a step of gradient descent on the mean square of the results."""
    import jax

    def step(weights: Any, sequence: Any) -> Any:
        gradients = jax.grad(lambda weights: (layer(weights, sequence).astype("float32") ** 2).mean())(weights)
        return jax.tree.map(lambda weight, gradient: weight - _RATE * gradient, weights, gradients)

    return step


_StateProduct = Callable[..., Any]
"""(state, first gate, end of the gates) → their pre-activations' share of it; without gates, of all."""


def _lstm(from_input: Any, of_state: _StateProduct, h: Any, c: Any) -> Any:
    import jax
    import jax.numpy as jnp

    i, f, g, o = jnp.split(from_input + of_state(h), 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gru(from_input: Any, of_state: _StateProduct, h: Any) -> Any:
    import jax
    import jax.numpy as jnp

    (r, z, n), (state_r, state_z, state_n) = (jnp.split(both, 3, -1) for both in (from_input, of_state(h)))
    z = jax.nn.sigmoid(z + state_z)
    return ((1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + state_r) * state_n) + z * h,)


def _reset_gru(from_input: Any, of_state: _StateProduct, h: Any) -> Any:
    import jax
    import jax.numpy as jnp

    r, z, n = jnp.split(from_input, 3, -1)
    state_r, state_z = jnp.split(of_state(h, 0, 2), 2, -1)
    z = jax.nn.sigmoid(z + state_z)
    return ((1 - z) * jnp.tanh(n + of_state(jax.nn.sigmoid(r + state_r) * h, 2, 3)) + z * h,)
