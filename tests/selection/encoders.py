"""Transformer blocks with the norm after the residual, small enough that XLA recomputes all of it in fusions."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

HEADS = 4


class Flax(nn.Module):
    """The block as Flax's users write it."""

    @nn.compact
    def __call__(self, x):
        features = x.shape[-1]
        x = nn.LayerNorm()(x + nn.MultiHeadDotProductAttention(HEADS)(x, x))
        return nn.LayerNorm()(x + nn.Dense(features)(nn.gelu(nn.Dense(2 * features)(x))))


def flax_block(*shape: int):
    """(function, its arguments)."""
    block, x = Flax(), _random(*shape)
    shapes = jax.eval_shape(block.init, jax.random.key(0), x)
    return block.apply, (jax.tree.map(lambda leaf: _random(*leaf.shape), shapes), x)


def plain_block(*shape: int):
    """(function, its arguments)."""
    features = shape[-1]
    sizes = [(features, 3 * features), (features, features), (features, 2 * features), (2 * features, features)]
    weights = [_random(*size) for size in sizes]
    return _plain, (_random(*shape), *weights, _random(2 * features), *(_random(features) for _ in range(6)))


def _plain(x, inputs, outputs, wide, narrow, b_wide, b_out, b_narrow, scale, shift, last_scale, last_shift):
    batch, length, features = x.shape
    split = (x @ inputs).reshape(batch, length, 3, HEADS, features // HEADS)
    query, key, value = (split[:, :, number].transpose(0, 2, 1, 3) for number in range(3))
    scores = jax.nn.softmax(query @ key.transpose(0, 1, 3, 2) / (features // HEADS) ** 0.5)
    attended = (scores @ value).transpose(0, 2, 1, 3).reshape(batch, length, features)
    x = _normed(x + attended @ outputs + b_out, scale, shift)
    return _normed(x + jax.nn.gelu(x @ wide + b_wide) @ narrow + b_narrow, last_scale, last_shift)


def _normed(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-6) * scale + shift


_generator = np.random.default_rng(5)


def _random(*shape: int) -> np.ndarray:
    return (_generator.standard_normal(shape) / 8).astype("float32")
