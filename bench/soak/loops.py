"""The soak's loops: programs that call one kernel many times at a tiny size, with what NumPy computes in float64.

A call that is dispatched in a loop comes back a hundred thousand times a second: whatever a call leaves behind, in a
thread pool's queue or in memory, is there a hundred thousand times.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_dispatch.bench.soak import programs
from hlo_dispatch.bench.soak.programs import SoakProgram, definite, half, wide, windows

Draw = Callable[..., np.ndarray]
_NHWC = ("NHWC", "HWIO", "NHWC")


def make(number: int, generator: np.random.Generator, count: int) -> SoakProgram:
    """A program in a loop of `count` turns; every number has its own kind."""
    kind = KINDS[number % len(KINDS)]
    return looped(kind(1, lambda *shape: generator.standard_normal(shape, dtype="float32") / 2), count)


def looped(program: SoakProgram, count: int) -> SoakProgram:
    """The program computed so many times, from the same inputs, though no compiler can know that they are."""

    def function(first: Any, *others: Any) -> Any:
        def step(_: int, result: Any) -> Any:
            is_huge = jnp.abs(result.ravel()[0]) > 1e30
            return program.function(first + is_huge.astype(first.dtype), *others)

        shape = jax.eval_shape(program.function, first, *others)
        return jax.lax.fori_loop(0, count, step, jnp.zeros(shape.shape, shape.dtype))

    return replace(program, name=f"loop of {program.name}", function=function)


def _cellular(size: int, draw: Draw) -> SoakProgram:
    x, w = draw(1, 10, 10, 16 * size), draw(3, 3, 1, 16 * size)

    def grow(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=_NHWC, feature_group_count=w.shape[3]
        )

    expected = np.einsum("nhwcij,ijc->nhwc", windows(x, 3), wide(w)[:, :, 0])
    return SoakProgram("depthwise convolution of 10x10", grow, (x, w), expected, 1e-4)


def _vector(size: int, draw: Draw) -> SoakProgram:
    x, w = draw(16 * size), draw(16, 16 * size)
    return SoakProgram("product of 16x16 with a vector", lambda x, w: w @ x, (x, w), wide(w) @ wide(x), 1e-4)


def _narrow(size: int, draw: Draw) -> SoakProgram:
    x, w = half(draw(1, 64 * size)), half(draw(64 * size, 96))
    return SoakProgram("product of one row bf16", lambda x, w: x @ w, (x, w), wide(x) @ wide(w), 3e-2)


def _sequence(size: int, draw: Draw) -> SoakProgram:
    x, v, w = draw(24, 16 * size), draw(16 * size, 32), draw(32, 16)

    def network(x: Any, v: Any, w: Any) -> Any:
        return jax.nn.relu(x @ v) @ w

    expected = np.maximum(wide(x) @ wide(v), 0) @ wide(w)
    return SoakProgram("two products", network, (x, v, w), expected, 1e-4)


def _transposed(size: int, draw: Draw) -> SoakProgram:
    x, w = draw(1, 6, 6, 16 * size), draw(2, 2, 16 * size, 16)

    def convolve(x: Any, w: Any) -> Any:
        return jax.lax.conv_transpose(x, w, (2, 2), "VALID", dimension_numbers=_NHWC)

    expected = np.einsum("nhwc,ijco->nhiwjo", wide(x), wide(w)[::-1, ::-1]).reshape(1, 12, 12, 16)
    return SoakProgram("transposed convolution", convolve, (x, w), expected, 1e-4)


def _weights_gradient(size: int, draw: Draw) -> SoakProgram:
    x, g = draw(1, 8, 8, 16 * size), draw(1, 6, 6, 16)

    def gradient(x: Any, g: Any) -> Any:
        def loss(w: Any) -> Any:
            return (jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=_NHWC) * g).sum()

        return jax.grad(loss)(jnp.zeros((3, 3, x.shape[3], g.shape[3]), x.dtype))

    expected = np.einsum("nhwcij,nhwk->ijck", windows(x, 3), wide(g))
    return SoakProgram("weights gradient", gradient, (x, g), expected, 1e-4)


def _layer_norm(size: int, draw: Draw) -> SoakProgram:
    x, scale = draw(8, 64 * size), draw(64 * size)

    def norm(x: Any, scale: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale

    centred = wide(x) - wide(x).mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * wide(scale)
    return SoakProgram("layer normalization", norm, (x, scale), expected, 1e-4)


def _softmax(size: int, draw: Draw) -> SoakProgram:
    x = draw(8, 64 * size)
    powers = np.exp(wide(x))
    return SoakProgram("softmax", lambda x: jax.nn.softmax(x), (x,), powers / powers.sum(-1, keepdims=True), 1e-4)


def _eigenvalues(size: int, draw: Draw) -> SoakProgram:
    matrix = definite(8 * size, draw)
    return SoakProgram("eigh", lambda a: jnp.linalg.eigh(a)[0], (matrix,), np.linalg.eigvalsh(wide(matrix)), 1e-3)


def _singular_values(size: int, draw: Draw) -> SoakProgram:
    matrix = draw(8 * size, 6)
    expected = np.linalg.svd(wide(matrix), compute_uv=False)
    return SoakProgram("svd", lambda a: jnp.linalg.svd(a, full_matrices=False)[1], (matrix,), expected, 1e-3)


def _triangle(size: int, draw: Draw) -> SoakProgram:
    matrix = draw(8 * size, 6)
    return SoakProgram(
        "qr", lambda a: jnp.abs(jnp.linalg.qr(a)[1]), (matrix,), np.abs(np.linalg.qr(wide(matrix))[1]), 1e-3
    )


KINDS = (
    _cellular, _vector, *programs.KINDS, _narrow, _sequence, _transposed, _weights_gradient, _layer_norm, _softmax,
    _eigenvalues, _singular_values, _triangle,
)  # fmt: skip
