"""Transposed convolutions of every kind against a float64 reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from calls import (
    TYPE_NAMES,
    Call,
    Tensor,
    Window,
    assert_close,
    random_values,
    strides_of,
    tensor,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry
from processor import skip_emulated

pytestmark = pytest.mark.any_python

CHANNELS = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 32, 33])


def result_size(window: Window, size: int, kernel: int, axis: int) -> int:
    reach = (kernel - 1) * (window.dilations[axis] + 1) + 1
    return (size - 1) * window.strides[axis] + reach - window.low[axis] - window.high[axis]


def deconvolution_call(
    source: Tensor, weights: Tensor, window: Window, bias: np.ndarray | None = None, reverse: bool = False
) -> Call:
    """The result has the source's memory layout."""
    grouped = weights.values.ndim > source.values.ndim
    channels = int(np.prod(weights.values.shape[: 1 + grouped]))
    sizes, kernel = source.values.shape[2:], weights.values.shape[2 + grouped :]
    spatial = [result_size(window, size, kernel[axis], axis) for axis, size in enumerate(sizes)]
    dims, dtype = (source.values.shape[0], channels, *spatial), source.values.dtype
    spec = {"abi": registry.abi()} | source.attributes("src") | weights.attributes("weights")
    spec |= {"dst_type": TYPE_NAMES[dtype], "dst_dims": list(dims), "dst_strides": strides_of(dims, source.layout)}
    spec |= {
        "strides": list(window.strides), "dilations": list(window.dilations),
        "padding_low": list(window.low), "padding_high": list(window.high), "weights_reversed": int(reverse),
    }  # fmt: skip
    operands = [source.memory, weights.memory]
    if bias is not None:
        spec["bias_type"] = TYPE_NAMES[bias.dtype]
        operands.append(bias)
    return Call("onednn.deconvolution", spec, operands, dims, dtype, source.layout)


def deconvolve(source: np.ndarray, weights: np.ndarray, window: Window, reverse: bool = False) -> np.ndarray:
    """Reference in float64: every kernel position adds the scaled source at its own offset."""
    source, weights = source.astype(np.float64), weights.astype(np.float64)
    if weights.ndim == source.ndim:
        weights = weights[None]
    groups, outputs, inputs, *kernel = weights.shape
    if reverse:
        weights = np.flip(weights, tuple(range(3, weights.ndim)))
    batch, _, *sizes = source.shape
    axes = range(len(sizes))
    grouped = source.reshape(batch, groups, inputs, *sizes)
    uncut = [(sizes[a] - 1) * window.strides[a] + (kernel[a] - 1) * (window.dilations[a] + 1) + 1 for a in axes]
    result = np.zeros((batch, groups, outputs, *uncut))
    for position in itertools.product(*map(range, kernel)):
        starts = [position[a] * (window.dilations[a] + 1) for a in axes]
        slices = [slice(starts[a], starts[a] + (sizes[a] - 1) * window.strides[a] + 1, window.strides[a]) for a in axes]
        piece = np.einsum("bgi...,goi->bgo...", grouped, weights[(..., *position)])
        result[(slice(None), slice(None), slice(None), *slices)] += piece
    # A negative high padding is room behind the last position, which stays zero.
    behind = [(0, max(0, -window.high[a])) for a in axes]
    result = np.pad(result, [(0, 0)] * 3 + behind)
    cut = [slice(window.low[a], uncut[a] - window.high[a]) for a in axes]
    return result[(..., *cut)].reshape(batch, groups * outputs, *(s.stop - s.start for s in cut))


@st.composite
def deconvolutions(draw, dtype: str):
    spatial = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["dense", "dense", "grouped", "depthwise"]))
    groups = {"dense": 1, "grouped": draw(st.integers(2, 4)), "depthwise": draw(CHANNELS)}[kind]
    inputs, outputs = (1, 1) if kind == "depthwise" else (draw(CHANNELS), draw(CHANNELS))
    sizes = draw(st.lists(st.integers(1, 7 if spatial < 3 else 4), min_size=spatial, max_size=spatial))
    kernel = draw(st.lists(st.integers(1, 4), min_size=spatial, max_size=spatial))
    strides = draw(st.lists(st.integers(1, 3), min_size=spatial, max_size=spatial))
    dilations = [draw(st.integers(0, 1)) if k > 1 else 0 for k in kernel]
    low, high = [], []
    for axis in range(spatial):
        reach = (kernel[axis] - 1) * (dilations[axis] + 1) + 1
        whole = (sizes[axis] - 1) * strides[axis] + reach
        low.append(draw(st.integers(0, min(2, whole - 1))))
        high.append(draw(st.integers(1 - strides[axis], min(2, whole - low[-1] - 1))))
    window = Window(tuple(strides), tuple(dilations), tuple(low), tuple(high))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rank = spatial + 2
    source = tensor(random_values(generator, [draw(st.integers(1, 3)), groups * inputs, *sizes], dtype),
                    [0, *range(2, rank), 1])  # fmt: skip
    dims, order = [outputs, inputs, *kernel], [*range(2, rank), 1, 0]
    if kind != "dense":
        dims, order = [groups, *dims], [*range(3, rank + 1), 2, 0, 1]
    weights = tensor(random_values(generator, dims, dtype), draw(st.sampled_from([order, order, None])))
    return source, weights, window, draw(st.booleans())


def check(case, dtype: str) -> None:
    source, weights, window, reverse = case
    call = deconvolution_call(source, weights, window, reverse=reverse)
    planned = kernels.plan(call.name, call.spec)
    if isinstance(planned, Refusal):  # a shape without a fast kernel is refused before it is ever called
        assert planned.code in ("reference-kernel", "kernel-unsupported")
        return
    expected = deconvolve(source.values, weights.values, window, reverse)
    magnitude = deconvolve(np.abs(source.values), np.abs(weights.values), window, reverse)
    assert_close(call.run(), expected, magnitude, dtype)


@pytest.mark.any_avx512
@settings(max_examples=100)
@given(deconvolutions("f32"))
def test_any_f32_deconvolution(case):
    check(case, "f32")


@settings(max_examples=60)
@given(deconvolutions("bf16"))
def test_any_bf16_deconvolution(case):
    check(case, "bf16")


def typical(generator, groups=1, dtype="f32", inputs=32, outputs=64):
    source = tensor(random_values(generator, [2, inputs, 9, 9], dtype), [0, 2, 3, 1])
    if groups == 1:
        weights = tensor(random_values(generator, [outputs, inputs, 3, 3], dtype), [2, 3, 1, 0])
    else:
        dims = [groups, outputs // groups, inputs // groups, 3, 3]
        weights = tensor(random_values(generator, dims, dtype), [3, 4, 2, 0, 1])
    return source, weights, Window((2, 2), (0, 0), (0, 0), (1, 1))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_fast_implementations_are_chosen(dtype):
    generator = np.random.default_rng(0)
    dense = kernels.plan("onednn.deconvolution", deconvolution_call(*typical(generator, dtype=dtype)).spec)
    assert not isinstance(dense, Refusal)
    if not dense.implementation.startswith("brg_deconv"):
        skip_emulated(dtype, dense.implementation)
    assert dense.implementation.startswith("brg_deconv")
    assert dense.reorders_weights
    depthwise = deconvolution_call(*typical(generator, 32, dtype, 32, 32))
    planned = kernels.plan("onednn.deconvolution", depthwise.spec)
    assert not isinstance(planned, Refusal)
    assert planned.implementation.startswith("jit_dw")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("reverse", [False, True])
def test_bias_and_epilogue(dtype, reverse):
    generator = np.random.default_rng(1)
    source, weights, window = typical(generator, dtype=dtype)
    bias, residual = random_values(generator, [64]), random_values(generator, [2, 64, 18, 18], dtype)
    call = deconvolution_call(source, weights, window, bias, reverse)
    call.binary("add", residual, [0, 2, 3, 1]).eltwise("relu")
    planned = kernels.plan(call.name, call.spec)
    if isinstance(planned, Refusal):
        skip_emulated(dtype, planned.sentence)
    value = deconvolve(source.values, weights.values, window, reverse)
    value += bias.reshape(1, -1, 1, 1) + residual.astype(np.float64)
    assert_close(call.run(), np.maximum(value, 0), np.full_like(value, 100), dtype)


def test_an_epilogue_that_would_be_slow_is_refused():
    """oneDNN's depthwise kernel has no epilogue; applied element by element it would cost a hundred times more."""
    call = deconvolution_call(*typical(np.random.default_rng(2), 32, "f32", 32, 32)).eltwise("relu")
    refused = kernels.plan(call.name, call.spec)
    assert isinstance(refused, Refusal)
    assert refused.code == "kernel-unsupported"
    assert "post-ops" in refused.sentence


def test_one_dimension_more_than_the_operands_have():
    source, weights, window = typical(np.random.default_rng(3))
    call = deconvolution_call(source, weights, window)
    call.spec["dst_dims"] = [2, 64, 18, 18, 1]
    with pytest.raises(ValueError, match="dst: expected as many dimensions as src"):
        kernels.plan(call.name, call.spec)


def disjoint(generator, sizes, kernel, channels, weights_order, dtype="f32") -> tuple[Tensor, Tensor, Window]:
    """Windows that neither overlap nor leave gaps, as a patch embedding's are."""
    inputs, outputs = channels
    space = len(sizes)
    source = tensor(random_values(generator, [2, inputs, *sizes], dtype), [0, *range(2, space + 2), 1])
    weights = tensor(random_values(generator, [outputs, inputs, *kernel], dtype), weights_order)
    zeros = (0,) * space
    return source, weights, Window(tuple(kernel), zeros, zeros, zeros)


ORDERS = {space: ([*range(2, space + 2), 0, 1], None, [*range(2, space + 2), 1, 0]) for space in (1, 2, 3)}
"""Of weights; in the first one the last window dimension and the channels lie behind one another."""


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("sizes", "kernel", "channels"),
    [
        ((3, 3), (16, 16), (40, 3)), ((1, 1), (2, 2), (1, 3)), ((5, 1), (1, 3), (17, 1)), ((1, 7), (4, 1), (8, 5)),
        ((4, 6), (2, 5), (33, 17)), ((9,), (4,), (3, 2)), ((1,), (2,), (1, 1)), ((2, 3, 4), (2, 3, 2), (7, 5)),
        ((1, 3, 1), (3, 1, 2), (16, 1)), ((2, 2), (1, 1), (5, 6)),
    ],
)  # fmt: skip
def test_windows_that_do_not_overlap(sizes, kernel, channels, dtype):
    generator = np.random.default_rng(4)
    for order, reverse in itertools.product(ORDERS[len(sizes)], (False, True)):
        check((*disjoint(generator, sizes, kernel, channels, order, dtype), reverse), dtype)


def test_windows_that_do_not_overlap_are_one_product():
    """Columns of the last window dimension and the channels in one: the deconvolution has three of sixteen lanes."""
    generator = np.random.default_rng(5)
    call = deconvolution_call(*disjoint(generator, (3, 3), (16, 16), (40, 3), ORDERS[2][0]))
    planned = kernels.plan(call.name, call.spec)
    assert not isinstance(planned, Refusal)
    assert "matmul" in planned.implementation
    # Positions behind the last window: zeros, which no product writes.
    source, weights, window = disjoint(generator, (3, 3), (4, 4), (8, 3), ORDERS[2][0])
    wider = Window(window.strides, window.dilations, window.low, (0, -3))
    planned = kernels.plan(call.name, deconvolution_call(source, weights, wider).spec)
    assert isinstance(planned, Refusal) or "matmul" not in planned.implementation
    check((source, weights, wider, False), "f32")
