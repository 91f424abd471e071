"""Values for a tree of shapes: random, near those of a trained model, and never all zero or all one.

Zeros and ones hide mistakes: an epilogue that adds the wrong bias is right when every bias is zero.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from typing import Any

import numpy as np


def fill(shapes: Any, seed: int, gain: float = 1.0) -> Any:
    """A tree of arrays; what a leaf is (weights, a scale, a mask) is read off its name.

    Args:
        gain: how much a layer amplifies; activations that halve everything need more than 1.
    """
    import jax

    generator = np.random.default_rng(seed)

    def values(path: tuple[Any, ...], leaf: Any) -> Any:
        return jax.numpy.asarray(_values(jax.tree_util.keystr(path), leaf, generator, gain), leaf.dtype)

    return jax.tree_util.tree_map_with_path(values, shapes)


def _values(name: str, leaf: Any, generator: np.random.Generator, gain: float) -> np.ndarray:
    shape = leaf.shape
    if np.issubdtype(leaf.dtype, np.integer):
        return _integers(name, shape, generator)
    noise = generator.standard_normal(shape, "float32")
    if "pixels" in name:
        # Plain noise is the same everywhere once a network has averaged over the image.
        patches = generator.uniform(0, 255, (shape[0], 4, 4, shape[3]))
        whole = patches.repeat(shape[1] // 4 + 1, 1).repeat(shape[2] // 4 + 1, 2)
        return whole[:, : shape[1], : shape[2]] * (0.9 + 0.1 * noise)
    if "variance" in name:
        return generator.uniform(0.8, 1.2, shape)
    if len(shape) < 2:
        return 0.1 * noise + any(word in name for word in ("scale", "gamma", "layernorm", "layer_norm", "'weight'"))
    if "embed" in name or not ("kernel" in name or "weight" in name):
        return noise
    # A depthwise kernel sums over its window only; everything else over all but the last dimension.
    inputs = np.prod(shape[:2] if "depthwise" in name or "dwconv" in name else shape[:-1])
    return gain * noise / np.sqrt(inputs)


def _integers(name: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    if "mask" in name:
        mask = np.ones(shape)
        mask[..., -max(1, shape[-1] // 4) :] = 0 if "decoder" not in name else 1
        return mask
    if "position" in name:
        return np.broadcast_to(np.arange(shape[-1]), shape)
    return generator.integers(0, 2 if "type" in name else 500, shape)
