"""Gaussian process regression in plain JAX: hyperparameters fitted by gradient descent with momentum."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def regression(*, points: int = 2000, dtype: str = "float32") -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return (negative log marginal likelihood, (parameters, x, y)); x is (points, 4), y (points,).

    Rasmussen and Williams, Gaussian Processes for Machine Learning, equation 5.8 without its constant, with a
    squared-exponential kernel (5.1); the parameters are logarithms of amplitude, length scales and noise.
    """
    import jax.numpy as jnp
    import jax.scipy.linalg as jsl
    import numpy as np

    random = np.random.default_rng(0)
    x = random.uniform(-3, 3, (points, 4)).astype(dtype)
    y = (np.sin(x).sum(1) + 0.1 * random.standard_normal(points)).astype(dtype)

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        amplitude, scales, noise = parameters
        scaled = x / jnp.exp(scales)
        norms = jnp.sum(scaled * scaled, 1)
        squares = jnp.maximum(norms[:, None] + norms - 2 * scaled @ scaled.T, 0)
        kernel = jnp.exp(amplitude - 0.5 * squares) + (jnp.exp(noise) + 1e-5) * jnp.eye(points, dtype=dtype)
        factor = jnp.linalg.cholesky(kernel)
        return 0.5 * y @ jsl.cho_solve((factor, True), y) + jnp.sum(jnp.log(jnp.diagonal(factor)))

    return loss, ((np.zeros((), dtype), np.zeros(4, dtype), np.full((), -2, dtype)), x, y)


def training(
    *, points: int = 2000, steps: int = 3, dtype: str = "float32"
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a program of some optimiser steps, which gives the parameters and each step's loss."""
    import jax

    loss, (parameters, x, y) = regression(points=points, dtype=dtype)

    def train(parameters: Any, x: Any, y: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            parameters, velocity = state
            value, gradient = jax.value_and_grad(loss)(parameters, x, y)
            velocity = jax.tree.map(lambda v, g: 0.9 * v - 0.01 / points * g, velocity, gradient)
            return (jax.tree.map(lambda p, v: p + v, parameters, velocity), velocity), value

        start = parameters, jax.tree.map(lambda p: 0 * p, parameters)
        (parameters, _), losses = jax.lax.scan(step, start, length=steps)
        return parameters, losses

    return train, (parameters, x, y)
