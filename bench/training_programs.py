"""Training steps of small programs, as users write them: perceptrons, convolutional and recurrent networks, attention.

Each step is a function of a state and a batch, and returns the updated state and the loss. Its products and
convolutions gain little each, so that measuring them one by one does not say what they gain together.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from hlo_dispatch.bench.programs import BenchProgram

_RANDOM = np.random.default_rng(0)
_RATE = 1e-3


def _array(*shape: int) -> jax.Array:
    return jnp.asarray(_RANDOM.standard_normal(shape, "float32") * 0.1)


def _convolve(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=layout, feature_group_count=groups
    )


def _square_error(got: Any, wanted: Any) -> Any:
    return jnp.mean((got - wanted) ** 2)


def _normalized(x: Any, axis: Any) -> Any:
    mean, variance = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5)


def gradient_descent(loss: Callable) -> Callable:
    """(parameters, *batch) → (updated parameters, loss)."""

    def step(parameters: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, *batch)
        return jax.tree.map(lambda p, g: p - _RATE * g, parameters, gradients), value

    return step


def adam(loss: Callable) -> Callable:
    """((parameters, means, variances), *batch) → (the same updated, loss)."""

    def step(state: Any, *batch: Any) -> Any:
        parameters, means, variances = state
        value, gradients = jax.value_and_grad(loss)(parameters, *batch)
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        variances = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, variances, gradients)
        parameters = jax.tree.map(lambda p, m, v: p - _RATE * m / (jnp.sqrt(v) + 1e-8), parameters, means, variances)
        return (parameters, means, variances), value

    return step


def _perceptron(layers: Any, x: Any, y: Any) -> Any:
    for w, b in layers[:-1]:
        x = nn.relu(x @ w + b)
    w, b = layers[-1]
    return _square_error(x @ w + b, y)


def _convolutional(p: Any, x: Any, y: Any) -> Any:
    first, second, third, head = p
    x = nn.relu(_convolve(nn.relu(_convolve(nn.relu(_convolve(x, first)), second, 2)), third, 2))
    return _square_error(x.mean((1, 2)) @ head, y)


def _separable(p: Any, x: Any, y: Any) -> Any:
    stem, blocks, head = p
    x = nn.relu(_convolve(x, stem, 2))
    for depthwise, pointwise in blocks:
        x = nn.relu6(_convolve(nn.relu6(_convolve(x, depthwise, 1, x.shape[-1])), pointwise))
    return _square_error(x.mean((1, 2)) @ head, y)


def _batch_normalized(p: Any, x: Any, y: Any) -> Any:
    windows, head = p
    for window in windows:
        x = nn.relu(_normalized(_convolve(x, window), (0, 1, 2)))
    return _square_error(x.mean((1, 2)) @ head, y)


def _autoencoder(p: Any, x: Any) -> Any:
    first, second, third, last = p
    z = nn.relu(_convolve(nn.relu(_convolve(x, first, 2)), second, 2))
    z = nn.relu(lax.conv_transpose(z, third, (2, 2), "SAME"))
    return _square_error(lax.conv_transpose(z, last, (2, 2), "SAME"), x)


def _recurrent(p: Any, x: Any, y: Any) -> Any:
    w, u, b, head = p
    start = jnp.zeros((x.shape[1], u.shape[0]))
    last, _ = lax.scan(lambda h, row: (jnp.tanh(row @ w + h @ u + b), None), start, x)
    return _square_error(last @ head, y)


def _lstm(p: Any, x: Any, y: Any) -> Any:
    w, u, b, head = p

    def cell(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ w + h @ u + b, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        return (nn.sigmoid(o) * jnp.tanh(c), c), None

    start = jnp.zeros((x.shape[1], u.shape[0]))
    (last, _), _ = lax.scan(cell, (start, start), x)
    return _square_error(last @ head, y)


def _gru(p: Any, x: Any, y: Any) -> Any:
    w, u, head = p

    def cell(h: Any, row: Any) -> Any:
        r, z, c = jnp.split(row @ w, 3, -1)
        r2, z2, c2 = jnp.split(h @ u, 3, -1)
        z = nn.sigmoid(z + z2)
        return (1 - z) * jnp.tanh(c + nn.sigmoid(r + r2) * c2) + z * h, None

    last, _ = lax.scan(cell, jnp.zeros((x.shape[1], u.shape[0])), x)
    return _square_error(last @ head, y)


def _transformer(layers: Any, x: Any, y: Any) -> Any:
    batch, length, width = x.shape
    for *projections, out, up, down in layers:
        q, k, v = ((x @ w).reshape(batch, length, 4, width // 4).swapaxes(1, 2) for w in projections)
        weights = nn.softmax(q @ k.swapaxes(-1, -2) / (width // 4) ** 0.5)
        x = _normalized(x + (weights @ v).swapaxes(1, 2).reshape(batch, length, width) @ out, -1)
        x = x + nn.gelu(x @ up) @ down
    return _square_error(x.mean(1), y)


def _graph_network(p: Any, adjacency: Any, x: Any, y: Any) -> Any:
    first, second = p
    x = adjacency @ (nn.relu(adjacency @ (x @ first)) @ second)
    return -jnp.mean(nn.log_softmax(x) * y)


def _gaussian_process(p: Any, x: Any, y: Any) -> Any:
    length, noise = p
    distances = ((x[:, None] - x[None]) ** 2).sum(-1)
    kernel = jnp.exp(-distances / (1 + length**2)) + (0.1 + noise**2) * jnp.eye(len(x))
    factor = jnp.linalg.cholesky(kernel)
    return 0.5 * y @ jax.scipy.linalg.cho_solve((factor, True), y) + jnp.log(jnp.diag(factor)).sum()


def _dense(*widths: int) -> list[tuple[Any, Any]]:
    return [(_array(inner, outer), _array(outer)) for inner, outer in itertools.pairwise(widths)]


def _attention_layer(width: int) -> tuple[Any, ...]:
    return *(_array(width, width) for _ in range(4)), _array(width, 4 * width), _array(4 * width, width)


def training_steps() -> Iterator[BenchProgram]:
    """The programs: name, step, state and batch."""

    def made(name: str, rule: Callable, loss: Callable, parameters: Any, *batch: Any) -> BenchProgram:
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        state = (parameters, zeros, zeros) if rule is adam else parameters
        return BenchProgram(f"{name} ({rule.__name__})", rule(loss), (state, *batch))

    windows = [_array(3, 3, inner, outer) for inner, outer in ((3, 32), (32, 64), (64, 64))]
    blocks = [(_array(3, 3, 1, 32), _array(1, 1, 32, 64)), (_array(3, 3, 1, 64), _array(1, 1, 64, 64))]
    plain = [_array(3, 3, inner, 32) for inner in (16, 32, 32)]
    coder = [_array(3, 3, inner, outer) for inner, outer in ((1, 16), (16, 32), (32, 16), (16, 1))]
    images = _array(16, 32, 32, 3)
    yield made("perceptron 512", adam, _perceptron, _dense(256, 512, 512, 10), _array(128, 256), _array(128, 10))
    yield made("perceptron 32", gradient_descent, _perceptron, _dense(16, 32, 32, 1), _array(64, 16), _array(64, 1))
    yield made("convolutions", adam, _convolutional, (*windows, _array(64, 10)), images, _array(16, 10))
    yield made(
        "separable convolutions", gradient_descent, _separable, (windows[0], blocks, _array(64, 10)),
        _array(8, 32, 32, 3), _array(8, 10),
    )  # fmt: skip
    yield made(
        "batch normalization", gradient_descent, _batch_normalized, (plain, _array(32, 10)), _array(8, 24, 24, 16),
        _array(8, 10),
    )  # fmt: skip
    yield made("autoencoder", gradient_descent, _autoencoder, coder, _array(16, 28, 28, 1))
    cell = (_array(64, 128), _array(128, 128), _array(128), _array(128, 8))
    yield made("recurrent", gradient_descent, _recurrent, cell, _array(32, 32, 64), _array(32, 8))
    gates = (_array(64, 512), _array(128, 512), _array(512), _array(128, 8))
    yield made("lstm", adam, _lstm, gates, _array(32, 16, 64), _array(16, 8))
    gates = (_array(32, 192), _array(64, 192), _array(64, 4))
    yield made("gru", gradient_descent, _gru, gates, _array(50, 32, 32), _array(32, 4))
    layers = [_attention_layer(128) for _ in range(2)]
    yield made("transformer", adam, _transformer, layers, _array(8, 64, 128), _array(8, 128))
    yield made(
        "graph network", gradient_descent, _graph_network, (_array(128, 64), _array(64, 8)), _array(512, 512),
        _array(512, 128), _array(512, 8),
    )  # fmt: skip
    scales = (jnp.float32(1.0), jnp.float32(0.1))
    yield made("gaussian process", gradient_descent, _gaussian_process, scales, _array(256, 4), _array(256))
