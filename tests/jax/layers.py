"""Layers that the programs of several tests share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

_LABELS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC")}


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Normal values, small enough that a product with such weights stays of the same size."""
    drawn = np.random.default_rng([seed, *shape]).standard_normal(shape) / np.sqrt(max(1, shape[-2:][0]))
    return drawn.astype(jnp.dtype(dtype))


def conv(x: jax.Array, w: jax.Array, stride: int | tuple[int, ...] = 1, padding="SAME", groups: int = 1) -> jax.Array:
    """A convolution over one or two dimensions, channels last."""
    space = x.ndim - 2
    strides = (stride,) * space if isinstance(stride, int) else stride
    return jax.lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=_LABELS[space], feature_group_count=groups
    )
