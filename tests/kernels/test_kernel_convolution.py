"""Convolutions of every kind against a float64 reference."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from calls import Window, assert_close, convolution_call, convolve, random_values, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_dispatch import _kernels
from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry

pytestmark = pytest.mark.any_python


@st.composite
def windows(draw, spatial: int, kernel: list[int], sizes: list[int]):
    strides = draw(st.lists(st.integers(1, 3), min_size=spatial, max_size=spatial))
    dilations = [draw(st.integers(0, 2)) if k > 1 else 0 for k in kernel]
    low, high = [], []
    for axis in range(spatial):
        reach = (kernel[axis] - 1) * (dilations[axis] + 1) + 1
        missing = max(0, reach - sizes[axis])  # at least one result position
        first = draw(st.integers(0, 2)) + missing // 2
        low.append(first)
        high.append(draw(st.integers(0, 2)) + missing - missing // 2)
    return Window(tuple(strides), tuple(dilations), tuple(low), tuple(high))


@st.composite
def convolutions(draw, dtype: str):
    spatial = draw(st.integers(1, 3))
    # One, odd, and not a multiple of a vector's 16 lanes, besides the sizes that kernels like.
    channels = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 32, 33])
    kind = draw(st.sampled_from(["dense", "dense", "grouped", "depthwise"]))
    groups = {"dense": 1, "grouped": draw(st.integers(2, 4)), "depthwise": draw(channels)}[kind]
    inputs = 1 if kind == "depthwise" else draw(channels)
    outputs = draw(st.sampled_from([1, 1, 2])) if kind == "depthwise" else draw(channels)
    batch = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(1, 9 if spatial < 3 else 6), min_size=spatial, max_size=spatial))
    kernel = draw(st.lists(st.integers(1, 4), min_size=spatial, max_size=spatial))
    window = draw(windows(spatial, kernel, sizes))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    rank = spatial + 2
    channels_last, channels_first = [0, *range(2, rank), 1], list(range(rank))
    source = tensor(random_values(generator, [batch, groups * inputs, *sizes], dtype),
                    draw(st.sampled_from([channels_last, channels_last, channels_first])))  # fmt: skip
    dims, order = [outputs, inputs, *kernel], [*range(2, rank), 1, 0]
    if kind != "dense":
        dims, order = [groups, *dims], [*range(3, rank + 1), 2, 0, 1]
    weights = tensor(random_values(generator, dims, dtype), draw(st.sampled_from([order, order, None])))
    bias = random_values(generator, [groups * outputs]) if draw(st.booleans()) else None
    result_layout = channels_last if source.layout == tuple(channels_last) else channels_first
    return convolution_call(source, weights, window, bias, result_layout), source, weights, window, bias


def check(case, dtype: str) -> None:
    call, source, weights, window, bias = case
    planned = kernels.plan(call.name, call.spec)
    if isinstance(planned, Refusal):  # a shape without a fast kernel is refused before it is ever called
        assert planned.code in ("reference-kernel", "kernel-unsupported")
        return
    expected = convolve(source.values, weights.values, window)
    magnitude = convolve(np.abs(source.values), np.abs(weights.values), window)
    if bias is not None:
        shape = (1, -1) + (1,) * (expected.ndim - 2)
        expected = expected + bias.astype(np.float64).reshape(shape)
        magnitude = magnitude + np.abs(bias).reshape(shape)
    assert_close(call.run(), expected, magnitude, dtype)


@pytest.mark.any_avx512
@settings(max_examples=150, deadline=None)
@given(convolutions("f32"))
def test_any_f32_convolution(case):
    check(case, "f32")


@settings(max_examples=80, deadline=None)
@given(convolutions("bf16"))
def test_any_bf16_convolution(case):
    check(case, "bf16")


def nhwc(generator, size, inputs, outputs, kernel, groups=1, dtype="f32"):
    """A square convolution as Keras and Flax write it: NHWC and HWIO, 'same' padding."""
    source = tensor(random_values(generator, [1, inputs, size, size], dtype), [0, 2, 3, 1])
    if groups == 1:
        weights = tensor(random_values(generator, [outputs, inputs, kernel, kernel], dtype), [2, 3, 1, 0])
    else:
        weights = tensor(
            random_values(generator, [groups, outputs // groups, inputs // groups, kernel, kernel], dtype),
            [3, 4, 2, 0, 1],
        )
    pad = (kernel // 2,) * 2
    window = Window((1, 1), (0, 0), pad, pad)
    return convolution_call(source, weights, window, None, [0, 2, 3, 1]), source, weights, window, None


@pytest.mark.parametrize("weights_format", ["plain", "any", "best"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("groups", [1, 4, 48])
def test_every_weights_format_computes_the_same(weights_format, dtype, groups):
    case = nhwc(np.random.default_rng(5), 9, 48, 48, 3, groups, dtype)
    case[0].spec["weights_format"] = weights_format
    check(case, dtype)


def test_depthwise_weights_are_reordered_for_the_depthwise_kernel():
    call, *_ = nhwc(np.random.default_rng(0), 14, 96, 96, 3, groups=96)
    plain = kernels.plan(call.name, call.spec | {"weights_format": "plain"})
    best = kernels.plan(call.name, call.spec)
    assert not isinstance(plain, Refusal)
    assert not isinstance(best, Refusal)
    if best.implementation != plain.implementation:
        assert best.reorders_weights
    assert not plain.reorders_weights


def test_f32_weights_stay_where_they_are():
    call, *_ = nhwc(np.random.default_rng(0), 14, 64, 64, 3)
    plain = kernels.plan(call.name, call.spec | {"weights_format": "plain"})
    best = kernels.plan(call.name, call.spec)
    assert not isinstance(plain, Refusal)
    assert not isinstance(best, Refusal)
    assert best.reorders_weights == (best.implementation != plain.implementation)


def wide_window(weights_format: str):
    """One channel and a window of 1x100."""
    generator = np.random.default_rng(0)
    source = tensor(random_values(generator, [1, 1, 64, 128]), [0, 2, 3, 1])
    weights = tensor(random_values(generator, [1, 1, 1, 100]), [2, 3, 1, 0])
    window = Window((1, 1), (0, 0), (0, 50), (0, 49))
    call = convolution_call(source, weights, window, None, [0, 2, 3, 1])
    call.spec["weights_format"] = weights_format
    return call, source, weights, window, None


def test_small_weights_are_reordered_for_another_variant_of_the_same_kernel():
    """Which shows in the memory that it asks for."""
    planned = {name: kernels.plan(call.name, call.spec) for name in ("plain", "any", "best")
               for call in [wide_window(name)[0]]}  # fmt: skip
    assert all(planned.values())
    has_another = planned["any"].scratch_bytes != planned["plain"].scratch_bytes
    if has_another and re.search("avx512|avx10", planned["plain"].implementation):
        assert planned["best"].reorders_weights
    check(wide_window("best"), "f32")


@pytest.mark.timing
def test_small_weights_in_the_better_layout():
    """Plain ones take seven times as long with oneDNN 3.13 on a processor with AVX-512."""
    call = wide_window("plain")[0]
    planned = kernels.plan(call.name, call.spec)
    if isinstance(planned, Refusal) or not re.match("brg.*(avx512|avx10)", planned.implementation):
        pytest.skip("plain weights run in another kernel here")

    def seconds(weights_format: str) -> float:
        call = wide_window(weights_format)[0]
        raw = _kernels.raw_call(registry.kernels()[call.name].target, call.spec | {"scratch": 1 << 30}, [])
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            _kernels.run_raw(raw, 1)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert seconds("best") < 1.5 * min(seconds("plain"), seconds("any"))


def test_one_dimensional_with_a_residual_and_a_scale():
    """A 1-D convolution runs as a 2-D one: operands of post-ops must follow."""
    generator = np.random.default_rng(9)
    source = tensor(random_values(generator, [2, 24, 31]), [0, 2, 1])
    weights = tensor(random_values(generator, [24, 1, 1, 5]), [3, 2, 0, 1])
    window = Window((1,), (0,), (2,), (2,))
    residual, scale = random_values(generator, [2, 24, 31]), random_values(generator, [1, 24, 1])
    call = convolution_call(source, weights, window, None, [0, 2, 1])
    call.binary("mul", scale, [0, 2, 1]).binary("add", residual, [0, 2, 1]).eltwise("relu")
    value = convolve(source.values, weights.values, window) * scale.astype(np.float64) + residual
    assert_close(call.run(), np.maximum(value, 0), np.full_like(value, 100))
