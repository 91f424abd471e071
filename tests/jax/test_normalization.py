"""Layer norm and RMS norm as people write them: one call, and the numbers of float64 NumPy, stock or better."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_dispatch
from side_by_side import run_both

os.environ.setdefault("KERAS_BACKEND", "jax")
linen, nnx, equinox = (pytest.importorskip(name) for name in ("flax.linen", "flax.nnx", "equinox"))
Program = Callable[..., jax.Array]
LAYER, RMS = "(x - mean(x)) / sqrt(variance(x) + epsilon) * scale + shift", "x / sqrt(mean(x * x) + epsilon) * scale"
LIMIT = {"float32": 3e-6, "bfloat16": 1e-2}
EPSILON = 1e-5


def flax(scale: jax.Array, shift: jax.Array, x: jax.Array, *, fast: bool = True) -> jax.Array:
    module = linen.LayerNorm(EPSILON, dtype=x.dtype, use_fast_variance=fast)
    return module.apply({"params": {"scale": scale, "bias": shift}}, x)


def flax_two_passes(scale: jax.Array, shift: jax.Array, x: jax.Array) -> jax.Array:
    return flax(scale, shift, x, fast=False)


def flax_nnx(scale: jax.Array, shift: jax.Array, x: jax.Array) -> jax.Array:
    module = nnx.LayerNorm(x.shape[-1], epsilon=EPSILON, dtype=x.dtype, rngs=nnx.Rngs(0))
    module.scale.value, module.bias.value = scale, shift
    return module(x)


def keras(scale: jax.Array, shift: jax.Array, x: jax.Array) -> jax.Array:
    layer: Any = pytest.importorskip("keras").layers.LayerNormalization(epsilon=EPSILON, dtype=x.dtype.name)
    layer.build(x.shape)
    return layer.stateless_call([scale, shift], [], x)[0]


def of_equinox(scale: jax.Array, shift: jax.Array, x: jax.Array) -> jax.Array:
    module = equinox.tree_at(lambda m: (m.weight, m.bias), equinox.nn.LayerNorm(x.shape[-1], EPSILON), (scale, shift))
    for _ in x.shape[1:]:
        module = jax.vmap(module)
    return module(x)


def by_hand(scale: jax.Array, shift: jax.Array, x: jax.Array) -> jax.Array:
    wide = x.astype("float32")
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt(wide.var(-1, keepdims=True) + EPSILON) * scale + shift).astype(x.dtype)


def flax_rms(scale: jax.Array, x: jax.Array) -> jax.Array:
    module = linen.RMSNorm(EPSILON, dtype=x.dtype)
    return module.apply({"params": {"scale": scale}}, x)


def llama_rms(scale: jax.Array, x: jax.Array) -> jax.Array:
    wide = x.astype("float32")
    return scale * (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPSILON)).astype(x.dtype)


def gemma_rms(scale: jax.Array, x: jax.Array) -> jax.Array:
    wide = x.astype("float32")
    normal = wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPSILON)
    return (normal * (1 + (scale.astype("float32") - 1))).astype(x.dtype)


def exact(x: jax.Array, scale: jax.Array, shift: jax.Array | None) -> np.ndarray:
    wide, factor = np.asarray(x, np.float64), np.asarray(scale, np.float64)
    if shift is None:
        return wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + EPSILON) * factor
    centred = wide - wide.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + EPSILON) * factor + np.asarray(shift, float)


def operands(shape: tuple[int, ...], dtype: str, *, mean: float = 0.5) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scale, shift, x; new ones every time: what is wrong anywhere shows some day."""
    random = np.random.default_rng()
    scale, shift = (jnp.asarray(random.standard_normal(shape[-1]), dtype) for _ in range(2))
    return scale, shift, jnp.asarray(random.standard_normal(shape) * 2 + mean, dtype)


def check(program: Program, arguments: tuple[jax.Array, ...], formula: str) -> None:
    """One call, as near to float64 as stock is, or as its result's type allows."""
    both = run_both(program, *arguments)
    assert [region.formula for region in both.report.dispatched] == [formula]
    assert [region.kernel for region in both.report.dispatched] == ["onednn.layer_norm"]
    (stock,), (got,) = both.stock, both.dispatched
    scale, *shift, x = arguments
    wanted = exact(x, scale, shift[0] if shift else None)
    size = np.abs(wanted).max()
    off, stock_off = (np.abs(np.asarray(found, np.float64) - wanted).max() / size for found in (got, stock))
    assert off <= max(LIMIT[x.dtype.name], 1.5 * stock_off)


LAYER_NORMS = [flax, flax_two_passes, flax_nnx, keras, of_equinox, by_hand]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 16, 64), (3, 50), (1, 5, 7)])
@pytest.mark.parametrize("program", LAYER_NORMS, ids=lambda program: program.__name__)
def test_layer_norm(program: Program, shape: tuple[int, ...], dtype: str) -> None:
    check(program, operands(shape, dtype), LAYER)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 16, 64), (3, 50)])
@pytest.mark.parametrize("program", [flax_rms, llama_rms, gemma_rms], ids=lambda program: program.__name__)
def test_rms_norm(program: Program, shape: tuple[int, ...], dtype: str) -> None:
    scale, _, x = operands(shape, dtype)
    check(program, (scale, x), RMS)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(2, 300), st.sampled_from(["float32", "bfloat16"])
)
def test_any_shape(before: list[int], size: int, dtype: str) -> None:
    scale, shift, x = operands((*before, size), dtype)
    if x.size == size:
        x = jnp.concatenate([x, x])
    check(flax, (scale, shift, x), LAYER)
    check(llama_rms, (scale, x), RMS)


def test_a_result_of_another_rank_stays_with_xla() -> None:
    """The last token of one prompt: XLA drops the dimension of one element inside the expression."""
    scale, _, x = operands((1, 1, 64), "float32")
    both = run_both(lambda scale, x: llama_rms(scale, x[:, -1]), scale, x)
    assert not both.report.dispatched
    (region,) = both.report.regions
    assert "result has the dimensions of x" in str(region.reason)
    np.testing.assert_allclose(both.dispatched[0], both.stock[0], rtol=1e-6)


def test_a_variance_that_stock_loses() -> None:
    """Stock takes the difference of two large means; what is left of it after 1e4 are the roundings."""
    scale, shift, x = operands((4, 64), "float32", mean=1e4)
    both = run_both(flax, scale, shift, x, as_users_have_it=True)
    wanted = exact(x, scale, shift)
    off, stock_off = (np.abs(found[0] - wanted).max() for found in (both.dispatched, both.stock))
    assert off <= stock_off


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(value: float) -> None:
    """It is seen in its own row, everywhere in it, and nowhere else."""
    scale, shift, x = operands((4, 40), "float32")
    x = x.at[1, 3].set(value)
    both = run_both(by_hand, scale, shift, x)
    assert both.report.dispatched
    np.testing.assert_array_equal(np.isfinite(both.dispatched[0]), np.isfinite(both.stock[0]))
    of_squares = run_both(flax_rms, scale, x)
    np.testing.assert_array_equal(np.isnan(of_squares.dispatched[0]), np.isnan(of_squares.stock[0]))


def test_rows_of_one_value_stay_right() -> None:
    """XLA leaves no reduction of them; what it leaves is computed as stock does."""
    both = run_both(flax, *operands((5, 1), "float32"), as_users_have_it=True)
    np.testing.assert_array_equal(both.dispatched[0], both.stock[0])


def test_a_sum_is_no_mean() -> None:
    """What looks like one but multiplies by another number stays with XLA, and the report says so."""

    def program(scale: jax.Array, x: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) * 0.3 + EPSILON) * scale

    scale, _, x = operands((4, 40), "float32")
    both = run_both(program, scale, x)
    assert not both.report.dispatched
    assert any("which gives no mean" in region.reason for region in both.report.regions)


def test_an_encoder_layer_without_its_attention_is_one_call() -> None:
    """Two frozen products, the residual and both norms: nothing of XLA's is between them."""
    random = np.random.default_rng(0)
    inner, outer = (jnp.asarray(random.standard_normal(shape) / 16, "float32") for shape in ((64, 256), (256, 64)))
    scale, shift, x = operands((32, 64), "float32")

    def program(inner: jax.Array, outer: jax.Array, scale: jax.Array, shift: jax.Array, x: jax.Array) -> jax.Array:
        x = flax(scale, shift, x)
        return flax(scale, shift, x + jax.nn.gelu(x @ inner) @ outer) * 2

    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(program, inner, outer, scale, shift)
        got = frozen(x)
    (made,) = frozen.report.programs
    assert made.dispatched is not None
    assert [sequence.calls for sequence in made.dispatched.sequences] == [4]
    np.testing.assert_allclose(got, program(inner, outer, scale, shift, x), rtol=2e-4, atol=2e-5)
