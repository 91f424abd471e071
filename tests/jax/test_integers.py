"""Convolutions of eight-bit integers, what follows them, poolings of such: against float64, where sums are exact."""

from __future__ import annotations

from functools import partial
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

pytestmark = [
    pytest.mark.skipif(bool(lacks_integers()), reason=lacks_integers()),
    pytest.mark.usefixtures("_compiled_quickly"),
]

NAMES = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}
CONVOLUTION = "onednn.convolution"


def conv(x: Any, w: Any, **how: Any) -> Any:
    how = {"window_strides": (1,) * (x.ndim - 2), "padding": "SAME", "preferred_element_type": jnp.int32} | how
    return jax.lax.conv_general_dilated(x, w, dimension_numbers=NAMES[x.ndim - 2], **how)


def quantized(y: Any, scale: float = 1.0, least: int = -128, most: int = 127) -> Any:
    return jnp.clip(jnp.round(y / scale), least, most).astype(jnp.int8)


def integers(*dims: int, seed: int | None = None) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, dims, np.int8)


def exact_conv(x: Any, w: Any, **how: Any) -> Any:
    return conv(x, w, **how | {"preferred_element_type": jnp.float64})


SIZES = [(1, 1, 1, 1, 1), (1, 5, 7, 3, 1), (2, 6, 5, 17, 3), (1, 9, 8, 33, 65), (3, 14, 14, 64, 32), (1, 7, 1, 130, 16)]


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(("batch", "height", "width", "inputs", "outputs"), SIZES)
def test_sums_are_exact(batch: int, height: int, width: int, inputs: int, outputs: int, window: int) -> None:
    x, w = integers(batch, height, width, inputs), integers(window, window, inputs, outputs)
    found, regions = dispatched(lambda x, w: conv(x, w).astype(jnp.float32), x, w)
    # XLA of jax 0.10.2 makes products of windows of one, and every XLA other convolutions of one line or one element.
    assert window == 1 or 1 in (height, width) or [region.kernel for region in regions] == [CONVOLUTION]
    np.testing.assert_array_equal(found, exact(exact_conv, x, w).astype(np.float32))


@pytest.mark.parametrize(
    "how",
    [{"window_strides": (2, 1)}, {"rhs_dilation": (2, 3)}, {"padding": ((0, 2), (1, 0))}],
    ids=str,
)  # fmt: skip
def test_windows(how: dict[str, Any]) -> None:
    x, w = integers(2, 11, 9, 16), integers(3, 3, 16, 16)
    found, regions = dispatched(lambda x, w: conv(x, w, **how).astype(jnp.float32), x, w)
    assert [region.kernel for region in regions] == [CONVOLUTION]
    np.testing.assert_array_equal(found, exact(partial(exact_conv, **how), x, w).astype(np.float32))


@pytest.mark.parametrize("groups", [4, 16])
def test_groups_are_right_whoever_computes_them(groups: int) -> None:
    """XLA makes a convolution with a dilated image of them, which no kernel takes of integers."""
    x, w = integers(2, 11, 9, 16), integers(3, 3, 16 // groups, 16)
    how = {"feature_group_count": groups}
    found, _ = dispatched(lambda x, w: conv(x, w, **how).astype(jnp.float32), x, w)
    np.testing.assert_array_equal(found, exact(partial(exact_conv, **how), x, w).astype(np.float32))


@pytest.mark.parametrize("space", [1, 3])
def test_lines_and_volumes(space: int) -> None:
    x, w = integers(1, *([6] * space), 8), integers(*([3] * space), 8, 12)
    found, _ = dispatched(lambda x, w: conv(x, w).astype(jnp.float32), x, w)
    np.testing.assert_array_equal(found, exact(exact_conv, x, w).astype(np.float32))


def block(x: Any, w: Any, scale: Any, bias: Any, convolve: Any, factor: float, step: float) -> Any:
    y = convolve(x, w).astype(scale.dtype) * scale + bias
    return jnp.maximum(y + x.astype(scale.dtype) * factor, 0) / step


@settings(deadline=None)
@given(st.integers(3, 12), st.sampled_from([8, 16, 31]), st.sampled_from([1.0, 0.05, -0.3]), st.floats(0.01, 3))
def test_a_residual_block_is_one_call(size: int, channels: int, factor: float, step: float) -> None:
    random = np.random.default_rng()
    x, w = integers(1, size, size, channels), integers(3, 3, channels, channels)
    scale = (random.random(channels) * 2e-4).astype("f")
    bias = random.standard_normal(channels).astype("f")
    found, regions = dispatched(
        lambda *given: quantized(block(*given, conv, factor, step)), x, w, scale, bias
    )  # fmt: skip
    assert [region.kernel for region in regions] == [CONVOLUTION]
    almost(found, exact(lambda *given: block(*given, exact_conv, factor, step), x, w, scale, bias), least=0)


@pytest.mark.parametrize(
    ("spelled", "least", "most"),
    [(lambda y: jnp.clip(jnp.round(y), -20, 100).astype(jnp.int8), -20, 100),
     (lambda y: jnp.round(jnp.clip(y, -128, 127)).astype(jnp.int8), -128, 127),
     (lambda y: jnp.minimum(jnp.maximum(jnp.round(y), -127), 127).astype(jnp.int8), -127, 127)],
)  # fmt: skip
def test_ways_to_round(spelled: Any, least: int, most: int) -> None:
    x, w = integers(1, 8, 8, 32), integers(3, 3, 32, 32)
    found, regions = dispatched(lambda x, w: spelled(conv(x, w).astype(jnp.float32) * 1e-3), x, w)
    (region,) = regions
    assert region.shape.startswith("s8")
    almost(found, exact(exact_conv, x, w) * np.float32(1e-3), least, most)


@pytest.mark.parametrize(
    "spelled",
    [lambda y: y.astype(jnp.int8),  # rounded towards zero
     lambda y: jnp.round(y).astype(jnp.int8),  # XLA's bounds, not ours to know
     lambda y: jnp.clip(jnp.floor(y), -128, 127).astype(jnp.int8),
     lambda y: jnp.clip(jnp.round(y), -200, 127).astype(jnp.int8)],
)  # fmt: skip
def test_what_rounds_otherwise_stays_with_xla(spelled: Any) -> None:
    x, w = integers(1, 8, 8, 32), integers(3, 3, 32, 32)
    _, regions = dispatched(lambda x, w: spelled(conv(x, w).astype(jnp.float32) * 1e-3), x, w)
    assert [region.shape[:3] for region in regions] == ["f32"]


@pytest.mark.parametrize("inputs", [32, 57, 58, 200])
def test_sums_that_stay_integers(inputs: int) -> None:
    """Exact to the last bit, and left to XLA where f32 has too few of them."""
    x, w = integers(1, 8, 8, inputs) // 64 + 125, integers(3, 3, inputs, 32) // 64 + 125
    found, regions = dispatched(lambda x, w: conv(x, w) >> 4, x, w)
    assert [region.kernel for region in regions] == [CONVOLUTION] * (inputs <= 57)
    np.testing.assert_array_equal(found, exact(exact_conv, x, w).astype(np.int64) >> 4)


def test_frozen_weights_are_prepacked() -> None:
    x, w = integers(1, 12, 12, 16), integers(3, 3, 16, 24)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(lambda w, x: quantized(conv(x, w).astype(jnp.float32), 500.0), w)
        found = np.asarray(fast(x))
        (program,) = fast.report.programs
        assert any(value.is_packed for value in program.prepared)
        other = integers(3, 3, 16, 24)
        fast.update(other)
        after = np.asarray(fast(x))
    almost(found, exact(exact_conv, x, w) / 500)
    almost(after, exact(exact_conv, x, other) / 500)


def test_measured() -> None:
    """Random inputs of measurements are integers of every size, and the results are compared."""
    x, w = integers(1, 28, 28, 32), integers(3, 3, 32, 32)
    with hlo_dispatch.enabled(policy="measure"):
        compiled = jax.jit(lambda x, w: quantized(conv(x, w).astype(jnp.float32), 900.0)).lower(x, w).compile()
    (region,) = hlo_dispatch.reports()[-1].regions
    assert "wrong" not in region.reason
    assert "differs" not in region.reason
    almost(np.asarray(compiled(x, w)), exact(exact_conv, x, w) / 900)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_largest_of_windows(padding: str) -> None:
    def pooled(x: Any, least: Any) -> Any:
        return jax.lax.reduce_window(x, least, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)

    x = integers(2, 15, 13, 19)
    found, regions = dispatched(lambda x: pooled(x, jnp.int8(-128)), x)
    assert [region.kernel for region in regions] == ["onednn.pooling"]
    np.testing.assert_array_equal(found, exact(lambda x: pooled(x, -np.inf), x).astype(np.int8))
    # From another number on it is no maximum of the window alone.
    other, regions = dispatched(lambda x: pooled(x, jnp.int8(3)), x)
    assert not regions
    np.testing.assert_array_equal(other, np.maximum(found, 3))


def product(x: Any, w: Any) -> Any:
    return jax.lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ())), preferred_element_type=jnp.int32)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (1, 300, 65), (3, 7, 5), (17, 129, 33), (40, 64, 1)])
def test_products(rows: int, depth: int, columns: int, is_transposed: bool) -> None:
    x, w = integers(rows, depth), integers(depth, columns)
    given_w = np.ascontiguousarray(w.T) if is_transposed else w
    found, _ = dispatched(lambda x, w: product(x, w.T if is_transposed else w).astype(jnp.float32), x, given_w)
    np.testing.assert_array_equal(found, (x.astype(np.int64) @ w.astype(np.int64)).astype(np.float32))


@pytest.mark.parametrize("rows", [1, 12])
def test_a_dense_layer_is_one_call(rows: int) -> None:
    """A scale for each row, as of activations that are quantized one by one, and for each column."""
    x, w = integers(2, rows, 96), integers(96, 70)
    random = np.random.default_rng()
    scale, of_row = (random.random(size).astype("f") / 1e3 for size in (70, (2, rows, 1)))
    bias = random.standard_normal(70).astype("f")

    def layer(x: Any, w: Any, scale: Any, of_row: Any, bias: Any) -> Any:
        return jax.nn.relu(product(x, w).astype(jnp.float32) * of_row * scale + bias)

    found, regions = dispatched(layer, x, w, scale, of_row, bias)
    assert [region.kernel for region in regions] == ["onednn.matmul"]
    sums = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(found, np.maximum(sums * of_row * scale + bias, 0), rtol=2e-6, atol=1e-6)


def test_products_in_a_batch_frozen_or_not() -> None:
    x, w = integers(4, 9, 33), integers(33, 24)
    wanted = x.astype(np.float64) @ w.astype(np.float64) / 300

    def layer(w: Any, x: Any) -> Any:
        return quantized(product(x, w).astype(jnp.float32), 300.0)

    found, _ = dispatched(layer, w, x)
    almost(found, wanted)
    with hlo_dispatch.enabled(policy="always"):
        almost(np.asarray(hlo_dispatch.freeze(layer, w)(x)), wanted)
