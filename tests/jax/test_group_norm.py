"""Group norms as people write them: one call, and numbers no further from float64 than stock's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from side_by_side import Both, run_both

RNG = np.random.default_rng(17)
EPSILON = 1e-5


def random(*dims: int, dtype: str = "float32", mean: float = 0.3) -> jax.Array:
    return jnp.asarray(RNG.standard_normal(dims) + mean, dtype)


def by_hand(x: jax.Array, scale: jax.Array, shift: jax.Array, groups: int = 4) -> jax.Array:
    """The mean of squared differences, of channels that are split into groups and joined."""
    axes = (*range(1, x.ndim - 1), x.ndim)
    split = x.reshape(*x.shape[:-1], groups, -1).astype("float32")
    mean = split.mean(axes, keepdims=True)
    variance = ((split - mean) ** 2).mean(axes, keepdims=True)
    normal = ((split - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape)
    return (normal * scale + shift).astype(x.dtype)


def as_flax_does(
    x: jax.Array, scale: jax.Array, shift: jax.Array, groups: int = 4, *, fast: bool = True, swish: bool = False
) -> jax.Array:
    """Means repeated for each channel, the scale multiplied with the root first, as in flax.linen.GroupNorm."""
    axes = (*range(1, x.ndim - 1), x.ndim)
    split = x.reshape(*x.shape[:-1], groups, -1).astype("float32")
    mean = split.mean(axes)
    if fast:
        variance = jnp.maximum(0.0, (split * split).mean(axes) - mean * mean)
    else:
        variance = jnp.square(split - jnp.expand_dims(mean, axes)).mean(axes)
    spread = tuple(range(1, x.ndim - 1))
    mean, variance = (jnp.expand_dims(jnp.repeat(each, x.shape[-1] // groups, -1), spread) for each in (mean, variance))
    found = ((x - mean) * (jax.lax.rsqrt(variance + EPSILON) * scale) + shift).astype(x.dtype)
    return jax.nn.swish(found) if swish else found


SPELLINGS: dict[str, Callable[..., Any]] = {
    "by hand": by_hand,
    "flax, fast": as_flax_does,
    "flax, exact": partial(as_flax_does, fast=False),
    "flax, swish": partial(as_flax_does, swish=True),
    "by hand, swish": lambda *arrays, **options: jax.nn.swish(by_hand(*arrays, **options)),
}


def expected(name: str, x: Any, scale: Any, shift: Any, groups: int = 4) -> np.ndarray:
    """In float64."""
    x, scale, shift = (np.asarray(each.astype("float32"), np.float64) for each in (x, scale, shift))
    split = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
    centred = split - split.mean((1, 3), keepdims=True)
    normal = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + EPSILON)
    found = normal.reshape(x.shape) * scale + shift
    return found / (1 + np.exp(-found)) if "swish" in name else found


def check(found: Both, wanted: np.ndarray) -> None:
    assert [region.kernel for region in found.report.dispatched] == ["own.group_norm"]
    off = [np.abs(np.asarray(each[0], np.float64) - wanted).max() for each in (found.dispatched, found.stock)]
    unit = 2.0**-8 if found.dispatched[0].dtype == "bfloat16" else 2.0**-23
    assert off[0] <= off[1] + 4 * unit * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dims", [(1, 8, 8, 40), (3, 5, 7, 12), (2, 9, 4), (1, 3, 2, 5, 8), (2, 64, 64, 20)])
@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str, dims: tuple[int, ...], dtype: str) -> None:
    x, scale, shift = random(*dims, dtype=dtype), random(dims[-1]), random(dims[-1])
    check(run_both(SPELLINGS[name], x, scale, shift), expected(name, x, scale, shift))


@pytest.mark.parametrize("groups", [2, 20])
def test_groups_of_many_channels_and_of_one(groups: int) -> None:
    x, scale, shift = random(2, 6, 5, 20), random(20), random(20)
    check(run_both(partial(by_hand, groups=groups), x, scale, shift), expected("", x, scale, shift, groups))


def test_a_mean_far_from_zero() -> None:
    """As exact as the mean of squared differences."""
    x, scale, shift = random(1, 32, 32, 16, mean=300.0), random(16), random(16)
    check(run_both(by_hand, x, scale, shift), expected("", x, scale, shift))


def test_vectors_in_half_precision() -> None:
    x, scale, shift = random(2, 6, 5, 8, dtype="bfloat16"), random(8, dtype="bfloat16"), random(8, dtype="bfloat16")
    check(run_both(as_flax_does, x, scale, shift), expected("", x, scale, shift))


def test_nan_and_infinity_stay_in_their_group() -> None:
    x, scale, shift = random(2, 4, 4, 8), random(8), random(8)
    for value in (jnp.nan, jnp.inf):
        found = run_both(by_hand, x.at[0, 1, 1, 3].set(value), scale, shift)
        np.testing.assert_array_equal(np.isnan(found.dispatched[0]), np.isnan(found.stock[0]))
        assert np.isnan(found.dispatched[0]).sum() == 32


def test_of_equal_numbers() -> None:
    scale, shift = random(8), random(8)
    found = run_both(by_hand, jnp.full((2, 3, 3, 8), 7.0), scale, shift)
    np.testing.assert_allclose(found.dispatched[0], np.broadcast_to(shift, (2, 3, 3, 8)), atol=1e-6)


def repeated(x: jax.Array, *vectors: jax.Array) -> Any:
    return jax.lax.scan(lambda carried, _: (by_hand(carried, *vectors), carried[0, 0, 0]), x, None, length=3)


def test_in_loops_batches_and_frozen() -> None:
    x, scale, shift = random(2, 4, 4, 8), random(8), random(8)
    found = run_both(repeated, x, scale, shift)
    assert "own.group_norm" in found.text
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], atol=2e-5)
    found = run_both(jax.vmap(by_hand, (0, None, None)), random(3, 2, 4, 4, 8), scale, shift)
    assert "own.group_norm" in found.text
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], atol=2e-5)
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda weights, x: as_flax_does(x, *weights), (scale, shift))
        np.testing.assert_allclose(frozen(x), expected("", x, scale, shift), atol=2e-5)


def test_a_gradient() -> None:
    x, scale, shift = random(2, 4, 4, 8), random(8), random(8)
    found = run_both(jax.grad(lambda x, *v: (by_hand(x, *v) ** 2).sum()), x, scale, shift)
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], atol=1e-4)


def other_groups(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Channels of a group do not lie side by side."""
    split = x.reshape(*x.shape[:-1], -1, 4)
    mean = split.mean((1, 2, 3), keepdims=True)
    variance = ((split - mean) ** 2).mean((1, 2, 3), keepdims=True)
    return ((split - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape) * scale + shift


def unbiased(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    split = x.reshape(*x.shape[:-1], 4, -1)
    mean = split.mean((1, 2, 4), keepdims=True)
    variance = split.var((1, 2, 4), keepdims=True, ddof=1)
    return ((split - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape) * scale + shift


def with_statistics(x: jax.Array, scale: jax.Array, shift: jax.Array) -> Any:
    split = x.reshape(*x.shape[:-1], 4, -1)
    mean = split.mean((1, 2, 4), keepdims=True)
    variance = ((split - mean) ** 2).mean((1, 2, 4), keepdims=True)
    return ((split - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape) * scale + shift, mean, variance


@pytest.mark.parametrize("program", [other_groups, unbiased, with_statistics])
def test_what_stays_with_stock(program: Callable[..., Any]) -> None:
    found = run_both(program, random(2, 4, 4, 8), random(8), random(8))
    assert "own.group_norm" not in found.text
    np.testing.assert_allclose(found.dispatched[0], found.stock[0], atol=2e-5)
