"""The dozen programs of the soak: each in several sizes, with what NumPy computes in float64 for it."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIZES = 8
"""Of each program: enough that some process always measures, and few enough that most are measured in the end."""
_NHWC = ("NHWC", "HWIO", "NHWC")
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class SoakProgram:
    """One program of one size, with its inputs."""

    name: str
    function: Callable[..., Any]
    inputs: Arrays
    expected: np.ndarray
    """In float64 (or complex128)."""
    tolerance: float
    """Of the largest value."""

    def difference(self, result: Any) -> float:
        """Difference from NumPy's result, over the largest value; infinite where it is not finite."""
        got = np.asarray(result).astype(self.expected.dtype)
        if got.shape != self.expected.shape or not np.isfinite(got).all():
            return float("inf")
        return float(np.abs(got - self.expected).max() / max(np.abs(self.expected).max(), 1e-30))


def make(number: int, generator: np.random.Generator) -> SoakProgram:
    """A program of a random size; every number has its own kind."""
    kind = KINDS[number % len(KINDS)]
    size = 1 + int(generator.integers(SIZES))
    return kind(size, lambda *shape: generator.standard_normal(shape, dtype="float32") / 2)


def _gemm(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    x, w, b = draw(48, 32 * size), draw(32 * size, 96), draw(96)
    expected = np.tanh(wide(x) @ wide(w) + b)
    return SoakProgram("gemm bias tanh", lambda x, w, b: jnp.tanh(x @ w + b), (x, w, b), expected, 1e-4)


def _half_gemm(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    x, w = half(draw(64, 32 * size)), half(draw(32 * size, 128))
    expected = np.maximum(wide(x) @ wide(w), 0)
    return SoakProgram("gemm relu bf16", lambda x, w: jax.nn.relu(x @ w), (x, w), expected, 3e-2)


def _gradient(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    x, w = draw(40, 16 * size), draw(16 * size, 64)
    expected = wide(x).T @ (1 - np.tanh(wide(x) @ wide(w)) ** 2)
    return SoakProgram("gradient", lambda x, w: jax.grad(lambda v: jnp.tanh(x @ v).sum())(w), (x, w), expected, 1e-3)


def _attention(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    q, k, v = draw(2, 16 * size, 32), draw(2, 16 * size, 32), draw(2, 16 * size, 32)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v

    scores = np.exp(wide(q) @ wide(k).swapaxes(1, 2))
    return SoakProgram("attention", attend, (q, k, v), scores / scores.sum(-1, keepdims=True) @ wide(v), 1e-4)


def _convolution(size: int, draw: Callable[..., np.ndarray], *, is_half: bool = False) -> SoakProgram:
    x, w = draw(1, 12 + size, 14, 16), draw(3, 3, 16, 24)
    x, w = (half(x), half(w)) if is_half else (x, w)

    def convolve(x: Any, w: Any) -> Any:
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=_NHWC))

    expected = np.maximum(np.einsum("nhwcij,ijck->nhwk", windows(x, 3), wide(w)), 0)
    name = "convolution relu bf16" if is_half else "convolution relu"
    return SoakProgram(name, convolve, (x, w), expected, 3e-2 if is_half else 1e-4)


def _half_convolution(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    return _convolution(size, draw, is_half=True)


def _depthwise(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    channels = 8 * size
    x, w = draw(1, 18, 18, channels), draw(3, 3, 1, channels)

    def convolve(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=_NHWC, feature_group_count=w.shape[3]
        )

    expected = np.einsum("nhwcij,ijc->nhwc", windows(x, 3), wide(w)[:, :, 0])
    return SoakProgram("depthwise convolution", convolve, (x, w), expected, 1e-4)


def _pooling(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    x = draw(1, 20, 20, 8 * size)

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "VALID")

    return SoakProgram("max pooling", pool, (x,), windows(x, 3).max((-1, -2)), 1e-6)


def _cholesky(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    matrix = definite(24 * size, draw)
    return SoakProgram("cholesky", jnp.linalg.cholesky, (matrix,), np.linalg.cholesky(wide(matrix)), 1e-3)


def _triangular(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    matrix, b = np.tril(definite(24 * size, draw)), draw(24 * size, 8)

    def solve(matrix: Any, b: Any) -> Any:
        return jax.scipy.linalg.solve_triangular(matrix, b, lower=True)

    return SoakProgram("triangular solve", solve, (matrix, b), np.linalg.solve(wide(matrix), wide(b)), 1e-3)


def _solve(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    matrix, b = definite(16 * size, draw), draw(16 * size, 4)
    return SoakProgram("solve", jnp.linalg.solve, (matrix, b), np.linalg.solve(wide(matrix), wide(b)), 1e-3)


def _fourier(size: int, draw: Callable[..., np.ndarray]) -> SoakProgram:
    x = draw(16, 64 * size) + 1j * draw(16, 64 * size)
    return SoakProgram("fft", jnp.fft.fft, (x.astype("complex64"),), np.fft.fft(x.astype("complex128")), 1e-4)


KINDS = (
    _gemm, _convolution, _cholesky, _fourier, _half_gemm, _depthwise, _triangular, _pooling, _half_convolution,
    _solve, _attention, _gradient,
)  # fmt: skip


def definite(size: int, draw: Callable[..., np.ndarray]) -> np.ndarray:
    """A random symmetric matrix with positive eigenvalues."""
    half = draw(size, size)
    return (half @ half.T / size + np.eye(size, dtype="float32")).astype("float32")


def windows(x: np.ndarray, size: int) -> np.ndarray:
    """Each image's square windows, in float64: batch, height, width, channels, and the window's two dimensions."""
    return np.lib.stride_tricks.sliding_window_view(wide(x), (size, size), (1, 2))


def wide(x: np.ndarray) -> np.ndarray:
    """In float64."""
    return x.astype("float64")


def half(x: np.ndarray) -> np.ndarray:
    """In bf16."""
    return x.astype(jnp.bfloat16)
