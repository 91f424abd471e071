"""Products and convolutions with a sliced result: only the slice is computed, with its epilogue."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, nn

from side_by_side import assert_agree, run_both


def conv(x, w, padding="SAME", strides=(1, 1), groups=1):
    labels = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=labels, feature_group_count=groups)


def causal(x, w):
    labels = ("NWC", "WIO", "NWC")
    full = lax.conv_general_dilated(x, w, (1,), [(3, 3)], dimension_numbers=labels, feature_group_count=w.shape[-1])
    return full[:, : x.shape[1]]


X, W = (48, 33), (33, 65)
IMAGE, KERNEL = (3, 9, 11, 16), (3, 3, 16, 24)
# name: (expression, shapes, what the kernel computes)
NARROWED: dict[str, tuple[Callable, tuple, str]] = {
    "first columns": (lambda x, w, b: nn.relu((x @ w)[:, :31] + b), (X, W, (31,)), "relu(slice(x @ w) + b)"),
    "inner columns": (lambda x, w, b: nn.relu((x @ w)[:, 7:38] + b), (X, W, (31,)), "relu(slice(x @ w) + b)"),
    "one column": (lambda x, w: nn.relu((x @ w)[:, 7:8]), (X, W), "relu(slice(x @ w))"),
    "rows": (lambda x, w, b: nn.relu((x @ w)[5:29:3] + b), (X, W, (65,)), "relu(slice(x @ w) + b)"),
    "rows and columns": (lambda x, w, r: (x @ w)[3:20, 60:] * r, (X, W, (17, 5)), "slice(x @ w) · r1"),
    "the slice alone": (lambda x, w: (x @ w)[3:20, 60:], (X, W), "slice(x @ w)"),
    "first token": (
        lambda x, w, b: jnp.tanh((x @ w)[:, 0] + b), ((4, 17, 33), W, (65,)), "tanh(slice(x @ w) + b)",
    ),
    "batches": (
        lambda x, w, r: (x @ w)[1:3, :, 4:] + r, ((4, 7, 33), (4, 33, 21), (2, 7, 17)), "slice(x @ w) + r1",
    ),
    "transposed operands": (
        lambda x, w, b: nn.relu((x.T @ w.T)[2:, 7:38] + b), ((33, 48), (65, 33), (31,)), "relu(slice(x @ w) + b)",
    ),
    "cropped padding": (
        lambda x, w, b: nn.relu(conv(x, w)[:, 1:-1, 1:] + b), (IMAGE, KERNEL, (24,)), "relu(slice(conv(x, w)) + b)",
    ),
    "channels": (
        lambda x, w, b: nn.relu(conv(x, w)[..., 5:17] + b), (IMAGE, KERNEL, (12,)), "relu(slice(conv(x, w)) + b)",
    ),
    "images": (
        lambda x, w, b: nn.relu(conv(x, w)[1:] + b), (IMAGE, KERNEL, (24,)), "relu(slice(conv(x, w)) + b)",
    ),
    "every other position": (
        lambda x, w, b: nn.relu(conv(x, w)[:, ::2, 1::2] + b), (IMAGE, KERNEL, (24,)), "relu(slice(conv(x, w)) + b)",
    ),
    "causal": (
        lambda x, w, b: nn.silu(causal(x, w) + b), ((2, 21, 16), (4, 1, 16), (16,)),
        "swish(1)[slice(conv(x, w)) + b]",
    ),
}  # fmt: skip
# name: (expression, shapes, what the kernel computes, why it goes no further)
WHOLE: dict[str, tuple[Callable, tuple, str, str]] = {
    "columns apart": (
        lambda x, w: nn.relu((x @ w)[:, ::2]), (X, W), "x @ w", "takes single columns",
    ),
    "without the first token": (
        lambda x, w: nn.relu((x @ w)[:, 1:]), ((4, 17, 33), W), "x @ w", "at uneven distances",
    ),
    "one of three heads' parts": (
        lambda x, w: nn.relu((x @ w).reshape(48, 5, 13)[:, :, :7]), (X, W), "x @ w", "at uneven distances",
    ),
    "behind the epilogue": (
        lambda x, w, b: nn.relu(x @ w + b)[:, :31], (X, W, (65,)), "relu(x @ w + b)", "keeps a part of the value",
    ),
    "cropped image": (
        lambda x, w: nn.relu(conv(x, w)[:, 2:]), (IMAGE, KERNEL), "conv(x, w)", "crops more than the padding",
    ),
    "grouped channels": (
        lambda x, w: nn.relu(conv(x, w, groups=2)[..., :12]), (IMAGE, (3, 3, 8, 24)), "conv(x, w)", "are grouped",
    ),
    "images apart": (
        lambda x, w: nn.relu(conv(x, w)[::2]), (IMAGE, KERNEL), "conv(x, w)", "takes single images",
    ),
    "shared by all slices": (
        lambda x, w, b: [nn.relu(part) for part in jnp.split(x @ w + b, 5, axis=1)], (X, W, (65,)),
        "x @ w + b", "5 slices share the value",
    ),
    "a gate": (
        lambda x, w: (x @ w)[:, :32] * nn.gelu((x @ w)[:, 32:64]), (X, W), "x @ w", "2 slices share the value",
    ),
}  # fmt: skip


def arrays(shapes, dtype) -> list:
    random = np.random.default_rng(len(shapes))
    return [jnp.asarray(random.standard_normal(shape) / 2, dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NARROWED)
def test_only_the_slice_is_computed(name: str, dtype: str) -> None:
    program, shapes, formula = NARROWED[name]
    both = run_both(program, *arrays(shapes, dtype))
    assert_agree(both)
    assert [region.formula for region in both.report.dispatched] == [formula]
    assert " slice(" not in both.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WHOLE)
def test_what_no_kernel_cuts_is_computed_whole_and_says_why(name: str, dtype: str) -> None:
    program, shapes, formula, why = WHOLE[name]
    both = run_both(program, *arrays(shapes, dtype))
    assert_agree(both)
    (region,) = both.report.dispatched
    assert region.formula == formula
    assert why in region.stopped_because


def test_a_value_that_is_used_elsewhere_is_computed_whole() -> None:
    x, w, b = arrays((X, W, (31,)), "float32")

    def program(x, w, b):
        product = x @ w
        return nn.relu(product[:, 7:38] + b), product

    both = run_both(program, x, w, b)
    assert_agree(both)
    assert [region.formula for region in both.report.dispatched] == ["x @ w"]


@pytest.mark.parametrize("seed", range(40))
def test_random_slices(seed: int) -> None:
    random = np.random.default_rng(seed)
    dtype = ("float32", "bfloat16")[seed % 2]

    def window(sizes: list[int]) -> tuple[slice, ...]:
        found = []
        for size in sizes:
            start = int(random.integers(0, size))
            found.append(slice(start, int(random.integers(start + 1, size + 1)), int(random.integers(1, 4))))
        # Most dimensions whole, as programs have it.
        return tuple(part if random.random() < 0.5 else slice(None) for part in found)

    if seed % 4 < 2:
        batch, rows, inner, columns = (int(size) for size in random.integers(1, 20, 4))
        cut = window([batch, rows, columns])
        shared = random.random() < 0.5
        shapes = ((batch, rows, inner), (inner, columns) if shared else (batch, inner, columns))

        def program(x, w):
            return jnp.tanh((x @ w)[cut] * 0.5)

    else:
        images, channels, outputs = (int(size) for size in random.integers(1, 9, 3))
        height, width = (int(size) for size in random.integers(3, 14, 2))
        strides = tuple(int(stride) for stride in random.integers(1, 3, 2))
        cut = window([images, -(-height // strides[0]), -(-width // strides[1]), outputs])
        shapes = ((images, height, width, channels), (3, 2, channels, outputs))

        def program(x, w):
            return jnp.tanh(conv(x, w, strides=strides)[cut] * 0.5)

    both = run_both(program, *arrays(shapes, dtype))
    assert_agree(both)
