"""Costly activations behind products of our own kernels, which ask no library for functions: one call each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

_ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("weights", [None, "int8"])
@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_is_part_of_the_product(name: str, weights: str | None) -> None:
    random = np.random.default_rng()
    w = jnp.asarray(random.integers(-127, 128, (161, 209)) / 127, jnp.float32).at[0].set(1)
    x = jnp.asarray(random.standard_normal((1, 161)), jnp.float32)
    activation = getattr(jax.nn, name, None) or getattr(jnp, name)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda w, x: activation(x @ w), w, weights=weights)
        got = frozen(x)
        (region,) = hlo_dispatch.explain(frozen, x).dispatched
    assert region.kernel == "own.narrow_product"
    assert name in ("sigmoid", "gelu") or region.formula.startswith({"silu": "swish"}.get(name, name))
    wanted = _ACTIVATIONS[name](np.asarray(x, np.float64) @ np.asarray(w, np.float64))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)
