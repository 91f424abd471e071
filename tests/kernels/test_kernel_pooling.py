"""Poolings against a float64 reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from calls import DTYPES, TYPE_NAMES, Call, Tensor, Window, assert_close, random_values, strides_of, tensor
from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.errors import Refusal
from hlo_dispatch.vendor import kernels, registry

pytestmark = pytest.mark.any_python

ALGORITHMS = ("max", "average")


def pooling_call(source: Tensor, algorithm: str, sizes, window: Window, layout) -> Call:
    spatial = [window.result_size(size, sizes[axis], axis) for axis, size in enumerate(source.values.shape[2:])]
    dims = (*source.values.shape[:2], *spatial)
    spec = {"abi": registry.abi()} | source.attributes("src")
    spec |= {
        "dst_type": TYPE_NAMES[source.values.dtype], "dst_dims": list(dims), "dst_strides": strides_of(dims, layout),
        "algorithm": algorithm, "window": list(sizes), "strides": list(window.strides),
        "dilations": list(window.dilations), "padding_low": list(window.low), "padding_high": list(window.high),
    }  # fmt: skip
    return Call("onednn.pooling", spec, [source.memory], dims, source.values.dtype, tuple(layout))


def pooling(source: np.ndarray, algorithm: str, sizes, window: Window, dims) -> np.ndarray:
    """Reference in float64: one shifted slice per window position."""
    padding = [(0, 0), (0, 0), *zip(window.low, [high + 64 for high in window.high], strict=True)]
    filling = -np.inf if algorithm == "max" else 0.0
    padded = np.pad(source.astype(np.float64), padding, constant_values=filling)
    slices = [
        padded[
            (
                slice(None),
                slice(None),
                *(
                    slice(k * (dilation + 1), k * (dilation + 1) + (count - 1) * stride + 1, stride)
                    for k, dilation, stride, count in zip(
                        position, window.dilations, window.strides, dims[2:], strict=True
                    )
                ),
            )
        ]
        for position in itertools.product(*map(range, sizes))
    ]
    return np.max(slices, axis=0) if algorithm == "max" else np.mean(slices, axis=0)


@st.composite
def poolings(draw):
    spatial = draw(st.integers(1, 3))
    lists = lambda low, high: draw(st.lists(st.integers(low, high), min_size=spatial, max_size=spatial))  # noqa: E731
    sizes = lists(1, 4)
    strides = lists(1, 3)
    low = [draw(st.integers(0, k - 1)) for k in sizes]
    high = [draw(st.integers(0, k - 1)) for k in sizes]
    extent = [draw(st.integers(k, 11)) for k in sizes]
    batch, channels = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3, 7, 16, 17, 64, 65]))
    window = Window(tuple(strides), (0,) * spatial, tuple(low), tuple(high))
    return (batch, channels, *extent), tuple(sizes), window


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(case=poolings(), channels_last=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_random_poolings(dtype, algorithm, case, channels_last, seed):
    shape, sizes, window = case
    rank = len(shape)
    layout = (0, *range(2, rank), 1) if channels_last else tuple(range(rank))
    source = tensor(random_values(np.random.default_rng(seed), shape, dtype), layout)
    call = pooling_call(source, algorithm, sizes, window, layout)
    planned = kernels.plan(call.name, call.spec)
    if isinstance(planned, Refusal):
        assert planned.code == "reference-kernel", planned
        return
    expected = pooling(source.values, algorithm, sizes, window, call.result_dims)
    magnitude = pooling(np.abs(source.values), "average", sizes, window, call.result_dims)
    assert_close(call.run(), expected, magnitude, dtype)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "median"}, "attribute 'algorithm': expected max or average, got 'median'"),
        ({"window": [3]}, "attribute 'window': expected 2 integers, got 1"),
        ({"src_dims": [4, 8], "src_strides": [8, 1]}, "src: expected 3 to 5 dimensions"),
        ({"dst_dims": [1, 8, 4], "dst_strides": [32, 4, 1]}, "dst: expected as many dimensions as src (4), got 3"),
    ],
)
def test_wrong_attributes_are_named(change, message):
    source = tensor(random_values(np.random.default_rng(0), (1, 8, 8, 8)), (0, 2, 3, 1))
    call = pooling_call(source, "max", (3, 3), Window((2, 2), (0, 0), (1, 1), (1, 1)), (0, 2, 3, 1))
    call.spec |= change
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        kernels.plan(call.name, call.spec)
