"""Dynamic quantization: activations rounded to 8-bit integers at run time, each group of a row with a scale of its own.

    x  ~  round(x · (127 / m)) · (m · (1 / 127)),    m = max |x| over 64 elements along the contracted dimensions

The function computes that in f32, whoever runs it; the kernel of products with integer weights recognizes it
(match/anchors/rounded_source.py), multiplies the integers, whose sums are exact, and scales the sum of each group.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.reduced_precision import WEIGHT_FORMATS

ACTIVATION_FORMATS = ("int8",)
"""Values of `freeze(..., activations=...)`."""
GROUP = 64
_LARGEST = 127
_SMALLEST = 2.0**-100
"""A group of smaller numbers is zeros."""


def checked_activation_format(activations: str | None, weights: str | None) -> str | None:
    """Check the value of `freeze(..., activations=...)`.

    Args:
        weights: the checked format of weights.

    Raises:
        FreezeError: there is no such format, or weights are no integers.
    """
    if activations is None:
        return None
    if activations not in ACTIVATION_FORMATS:
        there_is = ", ".join(map(repr, ACTIVATION_FORMATS))
        raise FreezeError(f"activations={activations!r} is no format of activations: None (unchanged), {there_is}")
    if weights is None or not jnp.issubdtype(WEIGHT_FORMATS[weights].dtype, jnp.integer):
        raise FreezeError(
            f"activations={activations!r} rounds what is multiplied with integer weights, of which weights={weights!r} "
            'makes none: weights="int8" or weights="int4" does'
        )
    return activations


def with_rounded_groups(operand: Any, contracted: Sequence[int], groups: int = 1) -> Any:
    """A product's operand, f32, rounded in groups along its contracted dimensions.

    Args:
        contracted: dimensions that the product sums up, in the order of the weights' dimensions.
        groups: number of groups along these in which weights have one scale each; 1: one for all.
    """
    free = [number for number in range(operand.ndim) if number not in contracted]
    order = (*free, *contracted)
    sizes = [operand.shape[number] for number in order]
    depth = math.prod(sizes[len(free) :])
    if groups == 1 and depth % GROUP == 0:
        groups = depth // GROUP
    grouped = jax.lax.transpose(operand, order).reshape(-1, groups, depth // groups)
    largest = jnp.maximum(jnp.max(jnp.abs(grouped), -1, keepdims=True), np.float32(_SMALLEST))
    rounded = jax.lax.round(grouped * (_LARGEST / largest), jax.lax.RoundingMethod.TO_NEAREST_EVEN)
    scaled = rounded * (largest * np.float32(1 / _LARGEST))
    return jax.lax.transpose(scaled.reshape(sizes), tuple(np.argsort(order).tolist()))
