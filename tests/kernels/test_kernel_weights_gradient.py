"""Gradients of convolutions with respect to their weights against a float64 reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from calls import (
    DTYPES,
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

pytestmark = pytest.mark.any_python

CHANNELS = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 32, 33])


def gradient_call(
    source: Tensor, gradient: Tensor, dims, layout, window: Window, dtype: str | None = None, reverse: bool = False
) -> Call:
    """`gradient` is the loss's with respect to the convolution's result; `dims` are the weights'."""
    result_dtype = DTYPES[dtype] if dtype else source.values.dtype
    spec = {"abi": registry.abi()} | source.attributes("src") | gradient.attributes("diff_dst")
    spec |= {"diff_weights_type": TYPE_NAMES[result_dtype], "diff_weights_dims": list(dims)}
    spec |= {
        "diff_weights_strides": strides_of(dims, layout),
        "strides": list(window.strides), "dilations": list(window.dilations),
        "padding_low": list(window.low), "padding_high": list(window.high), "weights_reversed": int(reverse),
    }  # fmt: skip
    operands = [source.memory, gradient.memory]
    return Call("onednn.weights_gradient", spec, operands, tuple(dims), result_dtype, tuple(layout))


def weights_gradient(source: np.ndarray, gradient: np.ndarray, dims, window: Window) -> np.ndarray:
    """Reference in float64: one product of shifted slices per kernel position."""
    source, gradient = source.astype(np.float64), gradient.astype(np.float64)
    grouped = len(dims) > source.ndim
    groups, outputs, inputs, *kernel = dims if grouped else (1, *dims)
    padding = [(low, max(0, high)) for low, high in zip(window.low, window.high, strict=True)]
    padded = np.pad(source, [(0, 0), (0, 0), *padding])
    batch, _, *spatial = gradient.shape
    by_group = gradient.reshape(batch, groups, outputs, *spatial)
    result = np.zeros((groups, outputs, inputs, *kernel))
    for position in itertools.product(*map(range, kernel)):
        starts = [position[a] * (window.dilations[a] + 1) for a in range(len(kernel))]
        slices = [
            slice(start, start + (count - 1) * stride + 1, stride)
            for start, count, stride in zip(starts, spatial, window.strides, strict=True)
        ]
        piece = padded[(slice(None), slice(None), *slices)].reshape(batch, groups, inputs, *spatial)
        result[(..., *position)] = np.einsum("bgip,bgop->goi", piece.reshape(*piece.shape[:3], -1),
                                             by_group.reshape(*by_group.shape[:3], -1))  # fmt: skip
    return result.reshape(dims)


@st.composite
def gradients(draw, dtype: str):
    spatial = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["dense", "dense", "grouped", "depthwise"]))
    groups = {"dense": 1, "grouped": draw(st.integers(2, 4)), "depthwise": draw(CHANNELS)}[kind]
    inputs = 1 if kind == "depthwise" else draw(CHANNELS)
    outputs = draw(st.sampled_from([1, 1, 2])) if kind == "depthwise" else draw(CHANNELS)
    batch = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(1, 9 if spatial < 3 else 6), min_size=spatial, max_size=spatial))
    kernel = draw(st.lists(st.integers(1, 4), min_size=spatial, max_size=spatial))
    strides = draw(st.lists(st.integers(1, 3), min_size=spatial, max_size=spatial))
    dilations = [draw(st.integers(0, 2)) if k > 1 else 0 for k in kernel]
    low, high, results = [], [], []
    for axis in range(spatial):
        reach = (kernel[axis] - 1) * (dilations[axis] + 1) + 1
        low.append(draw(st.integers(0, 2)))
        fitting = max(0, sizes[axis] + low[axis] - reach) // strides[axis] + 1
        results.append(fitting + draw(st.integers(0, 1)))
        high.append((results[axis] - 1) * strides[axis] + reach - sizes[axis] - low[axis])
    window = Window(tuple(strides), tuple(dilations), tuple(low), tuple(high))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rank = spatial + 2
    layouts = st.sampled_from([[0, *range(2, rank), 1]] * 3 + [list(range(rank)), [1, *range(2, rank), 0]])
    source = tensor(random_values(generator, [batch, groups * inputs, *sizes], dtype), draw(layouts))
    gradient = tensor(random_values(generator, [batch, groups * outputs, *results], dtype), draw(layouts))
    dims, layout = [outputs, inputs, *kernel], [*range(2, rank), 1, 0]
    if kind != "dense":
        dims, layout = [groups, *dims], [*range(3, rank + 1), 2, 0, 1]
    layout = draw(st.sampled_from([layout, layout, list(range(len(dims)))]))
    return source, gradient, dims, layout, window, draw(st.booleans())


def check(case, result: str) -> None:
    source, gradient, dims, layout, window, reverse = case
    call = gradient_call(source, gradient, dims, layout, window, result, reverse)
    planned = kernels.plan(call.name, call.spec)
    if isinstance(planned, Refusal):  # a shape without a fast kernel is refused before it is ever called
        assert planned.code in ("reference-kernel", "kernel-unsupported")
        return
    expected = weights_gradient(source.values, gradient.values, dims, window)
    magnitude = weights_gradient(np.abs(source.values), np.abs(gradient.values), dims, window)
    if reverse:
        space = tuple(range(-len(window.strides), 0))
        expected, magnitude = np.flip(expected, space), np.flip(magnitude, space)
    assert_close(call.run(), expected, magnitude, result)


@pytest.mark.any_avx512
@settings(max_examples=100)
@given(gradients("f32"))
def test_any_f32_gradient(case):
    check(case, "f32")


@settings(max_examples=60)
@given(gradients("bf16"), st.sampled_from(["bf16", "f32"]))
def test_any_bf16_gradient(case, result):
    check(case, result)


def typical(generator, groups=1, dtype="f32", layout=(0, 2, 3, 1)):
    source = tensor(random_values(generator, [2, 32, 12, 12], dtype), layout)
    gradient = tensor(random_values(generator, [2, 32, 12, 12], dtype), layout)
    dims, order = [32, 32, 3, 3], [2, 3, 1, 0]
    if groups > 1:
        dims, order = [groups, 32 // groups, 32 // groups, 3, 3], [3, 4, 2, 0, 1]
    return source, gradient, dims, order, Window((1, 1), (0, 0), (1, 1), (1, 1))


GENERATED = ("jit", "brg")


def is_generated(implementation: str) -> bool:
    """Whether oneDNN generates code for the very convolution, going by its implementation's name.

    The others are "ref", which computes element by element, "simple", and "gemm:jit" or "x64:gemm:jit", which unfolds
    images: there it is a product's code that is generated.
    """
    return implementation.startswith(GENERATED)


@pytest.mark.parametrize(
    ("implementation", "expected"),
    [
        ("jit:avx512_core", True),
        ("jit:avx2", True),
        ("jit_dw:avx512_core", True),
        ("jit_1x1:avx512_core", True),
        ("jit_bf16_dw:avx512_core", True),
        ("brgconv_bwd_w:avx10_1_512_amx", True),
        ("brgconv_bwd_w:avx512_core_amx", True),
        ("brg_conv_bwd_w:avx512_core", True),
        ("gemm:jit", False),
        ("gemm:any", False),
        ("x64:gemm:jit", False),
        ("ref:any", False),
        ("simple:any", False),
        ("", False),
    ],
)
def test_names_of_implementations(implementation: str, expected: bool) -> None:
    assert is_generated(implementation) == expected


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("layout", [(0, 2, 3, 1), (0, 1, 2, 3), (1, 2, 3, 0)], ids=["nhwc", "nchw", "chwn"])
@pytest.mark.parametrize("groups", [1, 4, 32])
def test_no_layout_leads_to_a_slow_implementation(dtype, layout, groups):
    call = gradient_call(*typical(np.random.default_rng(0), groups, dtype, layout))
    planned = kernels.plan(call.name, call.spec)
    assert not isinstance(planned, Refusal)
    assert is_generated(planned.implementation)
    assert planned.reorders_weights


def test_there_are_no_post_ops():
    call = gradient_call(*typical(np.random.default_rng(1))).eltwise("relu")
    refused = kernels.plan(call.name, call.spec)
    assert isinstance(refused, Refusal)
    assert refused.code == "kernel-unsupported"
    assert "neither bias nor post-ops" in refused.sentence


def test_a_missing_operand_is_named():
    call = gradient_call(*typical(np.random.default_rng(2)))
    del call.spec["diff_dst_dims"]
    with pytest.raises(ValueError, match="'diff_dst_dims' is missing"):
        kernels.plan(call.name, call.spec)
