"""Decoder of a language model in plain JAX, as people write it: Llama's layers, random weights, a key-value cache.

Forms, which compute the same:
    scan      lax.scan over stacked layers; each layer's cache comes in with the layer, and goes out changed
    carry     lax.scan over stacked layers; the whole cache is carried, and updated where the layer's part is
    unrolled  a Python loop over a list of layers, each with a cache of its own
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

FORMS = ("scan", "carry", "unrolled")


@dataclass(frozen=True)
class DecoderSize:
    """Dimensions of a decoder."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    """Width between the two products of the gated unit."""
    vocabulary: int = 32000

    @property
    def head_size(self) -> int:
        return self.width // self.heads


SIZES = {
    "tiny": DecoderSize(2, 256, 4, 2, 704),
    "small": DecoderSize(20, 1024, 16, 4, 2816),  # 0.29e9 parameters
    "large": DecoderSize(22, 2048, 32, 4, 5632),  # 1.1e9
}


def parameters(size: DecoderSize, form: str, dtype: str) -> dict[str, Any]:
    """Random weights; stacked over layers but for `unrolled`."""
    random = np.random.default_rng(0)
    keys = size.kv_heads * size.head_size
    shapes = {
        "query": (size.width, size.width), "key": (size.width, keys), "value": (size.width, keys),
        "out": (size.width, size.width), "gate": (size.width, size.hidden), "up": (size.width, size.hidden),
        "down": (size.hidden, size.width),
    }  # fmt: skip

    def matrix(*shape: int) -> jax.Array:
        return jnp.asarray(random.standard_normal(shape, "float32") * shape[0] ** -0.5).astype(dtype)

    names = [*shapes, "norm_before", "norm_between"]
    layers = [
        {name: matrix(*shapes[name]) if name in shapes else jnp.ones(size.width, dtype) for name in names}
        for _ in range(size.layers)
    ]
    embedding = jnp.asarray(random.standard_normal((size.vocabulary, size.width), "float32")).astype(dtype)
    return {
        "embedding": embedding,
        # A layer's own arrays go as they are stacked: they are never in memory twice.
        "layers": layers
        if form == "unrolled"
        else {name: jnp.stack([layer.pop(name) for layer in layers]) for name in names},
        "norm": jnp.ones(size.width, dtype),
        "head": matrix(size.width, size.vocabulary),
    }


def empty_cache(size: DecoderSize, form: str, capacity: int, dtype: str) -> Any:
    """Keys and values of each layer, zeros."""
    layer = (1, capacity, size.kv_heads, size.head_size)
    if form == "unrolled":
        return [(jnp.zeros(layer, dtype), jnp.zeros(layer, dtype)) for _ in range(size.layers)]
    return jnp.zeros((size.layers, *layer), dtype), jnp.zeros((size.layers, *layer), dtype)


def step(size: DecoderSize, form: str) -> Callable[..., tuple[jax.Array, Any]]:
    """(parameters, cache, tokens [1, t], position of the first) → (next token, cache): prefill, or a token."""

    def run(weights: Any, cache: Any, tokens: jax.Array, position: jax.Array) -> tuple[jax.Array, Any]:
        x = weights["embedding"][tokens]
        at = position + jnp.arange(tokens.shape[1])
        angles = _rotation(size, at, x.dtype)
        capacity = cache[0][0].shape[1]
        mask = jnp.arange(capacity)[None, :] <= at[:, None]
        x, cache = _LOOPS[form](size, weights["layers"], x, cache, position, angles, mask)
        logits = (_normalized(x[:, -1:], weights["norm"]) @ weights["head"]).astype(jnp.float32)
        return jnp.argmax(logits, -1).astype(jnp.int32), cache

    return run


def _scan(size: DecoderSize, layers: Any, x: Any, cache: Any, position: Any, angles: Any, mask: Any) -> Any:
    def body(x: Any, layer_and_cache: Any) -> Any:
        layer, *old = layer_and_cache
        return _layer(size, layer, x, angles, mask, lambda new: _put_layer(old, new, position))

    return lax.scan(body, x, (layers, *cache))


def _carry(size: DecoderSize, layers: Any, x: Any, cache: Any, position: Any, angles: Any, mask: Any) -> Any:
    def body(state: Any, layer_and_number: Any) -> Any:
        x, *cache = state
        layer, number = layer_and_number

        def put(new: Any) -> Any:
            changed = [
                lax.dynamic_update_slice(whole, part[None], (number, 0, position, 0, 0))
                for whole, part in zip(cache, new, strict=True)
            ]
            return changed, [lax.dynamic_index_in_dim(whole, number, 0, keepdims=False) for whole in changed]

        x, cache = _layer(size, layer, x, angles, mask, put)
        return (x, *cache), None

    (x, *cache), _ = lax.scan(body, (x, *cache), (layers, jnp.arange(size.layers)))
    return x, tuple(cache)


def _unrolled(size: DecoderSize, layers: Any, x: Any, cache: Any, position: Any, angles: Any, mask: Any) -> Any:
    changed = []
    for layer, old in zip(layers, cache, strict=True):
        x, new = _layer(size, layer, x, angles, mask, lambda new, old=old: _put_layer(old, new, position))
        changed.append(tuple(new))
    return x, changed


_LOOPS = {"scan": _scan, "carry": _carry, "unrolled": _unrolled}


def _put_layer(old: Any, new: Any, position: Any) -> Any:
    changed = tuple(
        lax.dynamic_update_slice(whole, part, (0, position, 0, 0)) for whole, part in zip(old, new, strict=True)
    )
    return changed, changed


def _layer(size: DecoderSize, layer: Any, x: Any, angles: Any, mask: Any, put: Callable[[Any], Any]) -> Any:
    """(x, changed cache); `put` takes new keys and values, and returns the cache with them and all it has."""
    batch, count, _ = x.shape
    h = _normalized(x, layer["norm_before"])
    query = _rotated((h @ layer["query"]).reshape(batch, count, size.heads, size.head_size), *angles)
    key = _rotated((h @ layer["key"]).reshape(batch, count, size.kv_heads, size.head_size), *angles)
    value = (h @ layer["value"]).reshape(batch, count, size.kv_heads, size.head_size)
    cache, (keys, values) = put((key, value))
    query = query.reshape(batch, count, size.kv_heads, size.heads // size.kv_heads, size.head_size)
    scores = jnp.einsum("btkgh,bskh->bkgts", query, keys).astype(jnp.float32) * size.head_size**-0.5
    weights = nn.softmax(jnp.where(mask, scores, -1e30), -1).astype(x.dtype)
    mixed = jnp.einsum("bkgts,bskh->btkgh", weights, values).reshape(batch, count, size.width)
    x = x + mixed @ layer["out"]
    h = _normalized(x, layer["norm_between"])
    return x + (nn.silu(h @ layer["gate"]) * (h @ layer["up"])) @ layer["down"], cache


def _normalized(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    wide = wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)
    return wide.astype(x.dtype) * scale


def _rotation(size: DecoderSize, at: Any, dtype: Any) -> tuple[Any, Any]:
    """Cosines and sines of rotary embeddings."""
    frequencies = 1.0 / (10000.0 ** (jnp.arange(0, size.head_size, 2) / size.head_size))
    angle = at[:, None] * frequencies[None]
    angle = jnp.concatenate([angle, angle], -1)[None, :, None, :]
    return jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)


def _rotated(x: Any, cosine: Any, sine: Any) -> Any:
    first, second = jnp.split(x, 2, -1)
    return (x * cosine + jnp.concatenate([-second, first], -1) * sine).astype(x.dtype)
