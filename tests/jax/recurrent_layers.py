"""Recurrent layers that tests compile, their inputs, and what float64 NumPy makes of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from side_by_side import Both


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def random_inputs(*shapes: tuple[int, ...]) -> list[jax.Array]:
    """New ones every time: what is wrong anywhere shows some day."""
    random = np.random.default_rng()
    return [jnp.asarray(random.standard_normal(shape) / 2, jnp.float32) for shape in shapes]


def lstm(x, h, c, wx, wh, b, *, order: str = "ifgo", reverse: bool = False):
    def step(state, x):
        h, c = state
        gates = dict(zip(order, jnp.split(x @ wx + h @ wh + b, 4, -1), strict=True))
        c = jax.nn.sigmoid(gates["f"]) * c + jax.nn.sigmoid(gates["i"]) * jnp.tanh(gates["g"])
        h = jax.nn.sigmoid(gates["o"]) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), x, reverse=reverse)


def lstm_in_float64(x, h, c, wx, wh, b, *, order: str = "ifgo", reverse: bool = False) -> list[np.ndarray]:
    x, h, c, wx, wh, b = (np.asarray(array, np.float64) for array in (x, h, c, wx, wh, b))
    every = np.zeros((*x.shape[:2], h.shape[1]))
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        gates = dict(zip(order, np.split(x[t] @ wx + h @ wh + b, 4, -1), strict=True))
        c = _sigmoid(gates["f"]) * c + _sigmoid(gates["i"]) * np.tanh(gates["g"])
        h = every[t] = _sigmoid(gates["o"]) * np.tanh(c)
    return [h, c, every]


def arguments(steps: int, rows: int, inputs: int, units: int, gates: int = 4) -> list[jax.Array]:
    """x, h, c, wx, wh and b. Multiplied by wh a state keeps its size: roundings do not grow from step to step."""
    columns = gates * units
    x, h, c, wx, wh, b = random_inputs(
        (steps, rows, inputs), (rows, units), (rows, units), (inputs, columns), (units, columns), (columns,)
    )
    return [x, h, c, wx, wh * (2 / units**0.5), b]


def only_call(both: Both, formula: str) -> None:
    """The program has one kernel call, the recurrent layer's, and no loop."""
    (region,) = both.report.dispatched
    assert (region.kernel, region.formula) == ("onednn.recurrent", formula)
    assert " while(" not in both.text
