"""Decoder of a language model in plain JAX, as people write it: Llama's layers and a key-value cache.

Forms, which compute the same:
    scan      lax.scan over stacked layers; each layer's cache comes in with the layer, and goes out changed
    carry     lax.scan over stacked layers; the whole cache is carried, and updated where the layer's part is
    unrolled  a Python loop over a list of layers, each with a cache of its own
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn

from hlo_dispatch.bench.generate.weights import EPSILON, NORMS, ROTATION_BASE, DecoderSize, random_weights

FORMS = ("scan", "carry", "unrolled")


def parameters(size: DecoderSize, form: str, dtype: str) -> dict[str, Any]:
    """Random weights; stacked over layers but for `unrolled`."""
    layers: list[dict[str, Any]] = [{name: jnp.ones(size.width, dtype) for name in NORMS} for _ in range(size.layers)]
    others: dict[str, Any] = {"norm": jnp.ones(size.width, dtype)}
    for layer, name, array in random_weights(size):
        (others if layer is None else layers[layer])[name] = jnp.asarray(array).astype(dtype)
    names = list(layers[0])
    # A layer's own arrays go as they are stacked: they are never in memory twice.
    stacked = {name: jnp.stack([layer.pop(name) for layer in layers]) for name in names} if form != "unrolled" else None
    return others | {"layers": layers if stacked is None else stacked}


def empty_cache(size: DecoderSize, form: str, batch: int, capacity: int, dtype: str) -> Any:
    """Keys and values of each layer, zeros."""
    layer = (batch, capacity, size.kv_heads, size.head_size)
    if form == "unrolled":
        return [(jnp.zeros(layer, dtype), jnp.zeros(layer, dtype)) for _ in range(size.layers)]
    return jnp.zeros((size.layers, *layer), dtype), jnp.zeros((size.layers, *layer), dtype)


def step(size: DecoderSize, form: str) -> Callable[..., tuple[jax.Array, Any]]:
    """(parameters, cache, tokens [batch, t], position of the first) → (next tokens, cache): prefill, or a token."""

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


def predictions(size: DecoderSize) -> Callable[..., jax.Array]:
    """(stacked parameters, tokens [batch, t]) → logits [batch, t, vocabulary] of what follows each; without a cache."""

    def run(weights: Any, tokens: jax.Array) -> jax.Array:
        x = weights["embedding"][tokens]
        at = jnp.arange(tokens.shape[1])
        angles, mask = _rotation(size, at, x.dtype), at[None, :] <= at[:, None]

        def body(x: Any, layer: Any) -> Any:
            return _layer(size, layer, x, angles, mask, lambda new: (None, new))

        x, _ = lax.scan(body, x, weights["layers"])
        return (_normalized(x, weights["norm"]) @ weights["head"]).astype(jnp.float32)

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
    wide = wide * lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + EPSILON)
    return wide.astype(x.dtype) * scale


def _rotation(size: DecoderSize, at: Any, dtype: Any) -> tuple[Any, Any]:
    """Cosines and sines of rotary embeddings."""
    frequencies = 1.0 / (ROTATION_BASE ** (jnp.arange(0, size.head_size, 2) / size.head_size))
    angle = at[:, None] * frequencies[None]
    angle = jnp.concatenate([angle, angle], -1)[None, :, None, :]
    return jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)


def _rotated(x: Any, cosine: Any, sine: Any) -> Any:
    first, second = jnp.split(x, 2, -1)
    return (x * cosine + jnp.concatenate([-second, first], -1) * sine).astype(x.dtype)
