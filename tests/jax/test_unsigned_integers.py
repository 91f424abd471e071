"""Unsigned integer images with signed integer weights: against float64, where sums are exact."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_programs import almost, dispatched, exact

import hlo_dispatch
from processor import lacks_integers

pytestmark = pytest.mark.skipif(bool(lacks_integers()), reason=lacks_integers())

NAMES = ("NHWC", "HWIO", "NHWC")
FEW = 32
HALF = 0.501
CONVOLUTION, PRODUCT, POOLING = "onednn.convolution", "onednn.matmul", "onednn.pooling"


def conv(x: Any, w: Any, kind: Any = jnp.int32) -> Any:
    """JAX asks for operands of one type."""
    return jax.lax.conv_general_dilated(x.astype(kind), w.astype(kind), (1, 1), "SAME", dimension_numbers=NAMES)


def image(*dims: int) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, dims, np.uint8)


def weights(*dims: int) -> np.ndarray:
    return np.random.default_rng().integers(-128, 128, dims, np.int8)


def quantized(y: Any) -> Any:
    return jnp.clip(jnp.round(y), 0, 255).astype(jnp.uint8)


def exact_conv(x: Any, w: Any) -> Any:
    return conv(x, w, jnp.float64)


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("sizes", [(1, 5, 7, 3, 1), (2, 6, 5, 17, 3), (1, 9, 8, 33, 65), (3, 14, 14, 64, 32)])
def test_sums_are_exact(sizes: tuple[int, ...], window: int) -> None:
    batch, height, width, inputs, outputs = sizes
    x, w = image(batch, height, width, inputs), weights(window, window, inputs, outputs)
    found, regions = dispatched(lambda x, w: conv(x, w).astype(jnp.float32), x, w)
    # For few channels oneDNN would take code that is not exact on every processor; XLA of jax 0.10.2 makes products of
    # windows of one.
    assert [region.kernel for region in regions] == [CONVOLUTION] or window == 1 or inputs < FEW
    np.testing.assert_array_equal(found, exact(exact_conv, x, w).astype(np.float32))


def block(x: Any, w: Any, scale: Any, bias: Any, convolve: Any, factor: float) -> Any:
    y = convolve(x, w).astype(scale.dtype) * scale + bias
    return jnp.maximum(y + x.astype(scale.dtype) * factor, 0)


@settings(deadline=None)
@given(st.integers(9, 14), st.sampled_from([32, 48, 64]), st.sampled_from([1.0, 0.05, -0.3]))
def test_a_residual_block_is_one_call(size: int, channels: int, factor: float) -> None:
    # Smaller ones oneDNN computes by code that is not exact on every processor.
    random = np.random.default_rng()
    x, w = image(1, size, size, channels), weights(3, 3, channels, channels)
    scale = (random.random(channels) * 2e-3).astype("f")
    bias = random.standard_normal(channels).astype("f")
    found, regions = dispatched(lambda *given: quantized(block(*given, conv, factor)), x, w, scale, bias)
    assert [region.kernel for region in regions] == [CONVOLUTION]
    assert regions[0].shape.startswith("u8")
    almost(found, exact(lambda *given: block(*given, exact_conv, factor), x, w, scale, bias))


@pytest.mark.parametrize(
    "spelled",
    [lambda y: y.astype(jnp.uint8),  # rounded towards zero
     lambda y: jnp.clip(jnp.round(y), -1, 255).astype(jnp.uint8),  # XLA's bounds, not ours to know
     lambda y: jnp.clip(jnp.round(y), 0, 300).astype(jnp.uint8)],
)  # fmt: skip
def test_what_rounds_otherwise_stays_with_xla(spelled: Any) -> None:
    x, w = image(1, 8, 8, 32), weights(3, 3, 32, 32)
    _, regions = dispatched(lambda x, w: spelled(conv(x, w).astype(jnp.float32) * 1e-3), x, w)
    assert [region.shape[:3] for region in regions] == ["f32"]


def test_rounded_to_the_other_type() -> None:
    x, w = image(1, 8, 8, 32), weights(3, 3, 32, 32)

    def network(x: Any, w: Any) -> Any:
        y = jnp.round(conv(x, w).astype(jnp.float32) * 1e-3)
        return jnp.clip(y, -128, 127).astype(jnp.int8)

    found, regions = dispatched(network, x, w)
    assert [region.shape[:2] for region in regions] == ["s8"]
    assert np.abs(found - np.clip(exact(exact_conv, x, w) * 1e-3, -128, 127)).max() < HALF


@pytest.mark.parametrize(("rows", "inner", "columns"), [(5, 33, 18), (64, 100, 70), (1, 128, 256)])
def test_products(rows: int, inner: int, columns: int) -> None:
    x, w = image(rows, inner), weights(inner, columns)
    found, regions = dispatched(lambda x, w: (x.astype(jnp.int32) @ w.astype(jnp.int32)).astype(jnp.float32), x, w)
    assert [region.kernel for region in regions] == [PRODUCT]
    np.testing.assert_array_equal(found, x.astype(np.float64) @ w.astype(np.float64))


@pytest.mark.parametrize("kinds", [(image, image), (weights, image)], ids=["both without a sign", "weights without"])
def test_weights_without_a_sign_stay_with_xla(kinds: Any) -> None:
    x, w = kinds[0](1, 8, 8, 32), kinds[1](3, 3, 32, 32)
    found, regions = dispatched(lambda x, w: conv(x, w).astype(jnp.float32), x, w)
    assert not regions
    np.testing.assert_array_equal(found, exact(exact_conv, x, w).astype(np.float32))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_largest_of_windows(padding: str) -> None:
    def pooled(x: Any, least: Any) -> Any:
        return jax.lax.reduce_window(x, least, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)

    x = image(2, 15, 13, 19)
    found, regions = dispatched(lambda x: pooled(x, jnp.uint8(0)), x)
    assert [region.kernel for region in regions] == [POOLING]
    np.testing.assert_array_equal(found, exact(lambda x: pooled(x, -np.inf), x).astype(np.uint8))


def test_frozen_and_measured() -> None:
    x, w = image(1, 28, 28, 32), weights(3, 3, 32, 32)
    with hlo_dispatch.enabled(policy="measure"):
        fast = hlo_dispatch.freeze(lambda w, x: quantized(conv(x, w).astype(jnp.float32) / 2000), w)
        found = np.asarray(fast(x))
    report = fast.report.programs[0].dispatched
    assert report is not None
    assert not any("wrong" in region.reason or "differs" in region.reason for region in report.regions)
    almost(found, exact(exact_conv, x, w) / 2000)
