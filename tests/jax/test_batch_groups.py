"""Convolutions in batch groups, which XLA:CPU turns into one more spatial dimension, or a diagonal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, nn

from side_by_side import assert_agree, run_both

LABELS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


def conv(x, w, groups, strides=None, dilations=None, padding="SAME"):
    space = x.ndim - 2
    return lax.conv_general_dilated(
        x, w, strides or (1,) * space, padding, rhs_dilation=dilations, dimension_numbers=LABELS[space],
        batch_group_count=groups,
    )  # fmt: skip


def arrays(shapes, dtype) -> list:
    random = np.random.default_rng(len(shapes))
    return [jnp.asarray(random.standard_normal(shape) / 2, dtype) for shape in shapes]


# name: (groups, batch, space, channels, outputs, other options)
FORWARD = {
    "a group for each image": (2, 2, (9, 11), 16, 24, {}),
    "two of four": (2, 4, (9, 11), 16, 24, {}),
    "four of four": (4, 4, (9, 11), 3, 24, {}),
    "strided": (3, 6, (9, 11), 5, 12, {"strides": (2, 3)}),
    "dilated": (3, 6, (9, 11), 5, 12, {"dilations": (2, 1)}),
    "one output each": (4, 8, (9, 11), 16, 4, {}),
    "one dimension": (2, 4, (17,), 7, 6, {}),
    "padded by hand": (2, 4, (9, 7), 7, 6, {"padding": [(0, 2), (3, 1)]}),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FORWARD)
def test_forward_with_an_epilogue(name: str, dtype: str) -> None:
    groups, batch, space, channels, outputs, options = FORWARD[name]
    shapes = ((batch, *space, channels), (*(3,) * len(space), channels, outputs), (outputs,))
    both = run_both(lambda x, w, b: nn.relu(conv(x, w, groups, **options) + b), *arrays(shapes, dtype))
    assert_agree(both)
    assert [region.formula for region in both.report.candidates] == ["relu(conv(x, w) + b)"]
    assert both.calls == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_three_dimensions_are_left_with_a_reason(dtype: str) -> None:
    # With the groups they are four, and XLA:CPU itself takes three.
    x, w = arrays(((4, 5, 6, 7, 3), (3, 3, 3, 3, 4)), dtype)
    both = run_both(lambda x, w: conv(x, w, 2), x, w)
    assert_agree(both)
    assert all(region.dispatched or " " in region.refusal.sentence for region in both.report.candidates)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_as_many_groups_as_images_and_outputs(dtype: str) -> None:
    # XLA computes every output of every image, and cuts the diagonal out: the convolution is dispatched, dense.
    both = run_both(lambda x, w, b: nn.relu(conv(x, w, 4) + b), *arrays(((4, 9, 11, 8), (3, 3, 8, 4), (4,)), dtype))
    assert_agree(both)
    (convolution,) = (region for region in both.report.candidates if region.opcode == "convolution")
    assert convolution.dispatched
    assert "select" in convolution.stopped_because


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FORWARD)
def test_gradients_agree(name: str, dtype: str) -> None:
    groups, batch, space, channels, outputs, options = FORWARD[name]
    x, w = arrays(((batch, *space, channels), (*(3,) * len(space), channels, outputs)), dtype)

    def loss(x, w):
        return jnp.sum(jnp.square(conv(x, w, groups, **options).astype("float32")))

    assert_agree(run_both(jax.grad(loss, (0, 1)), x, w))


@pytest.mark.parametrize("seed", range(20))
def test_random_groups(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups, per_group, channels, outputs = (int(size) for size in random.integers(1, 5, 4))
    height, width = (int(size) for size in random.integers(3, 14, 2))
    strides = tuple(int(stride) for stride in random.integers(1, 3, 2))
    shapes = ((groups * per_group, height, width, channels), (3, 2, channels, groups * outputs))

    def program(x, w):
        return jnp.tanh(conv(x, w, groups, strides=strides) * 0.5)

    assert_agree(run_both(program, *arrays(shapes, ("float32", "bfloat16")[seed % 2])))
