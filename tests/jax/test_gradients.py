"""Gradients of convolutions and transposed convolutions: all dispatched, and equal to stock XLA's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from processor import skip_without
from side_by_side import Both, assert_agree, run_both

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

LABELS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


def values(number: int, shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(number).standard_normal(shape), dtype)


def convolve(x, w, stride=1, groups=1, dilation=1, padding="SAME"):
    space = x.ndim - 2
    return lax.conv_general_dilated(
        x, w, (stride,) * space, padding, rhs_dilation=(dilation,) * space, dimension_numbers=LABELS[space],
        feature_group_count=groups,
    )  # fmt: skip


def gradients(x_shape, w_shape, dtype="float32", function=convolve, **window) -> Both:
    """Both gradients of a convolution, as an optimiser would ask for them."""
    x, w = values(0, x_shape, dtype), values(1, w_shape, dtype)
    y = jax.eval_shape(lambda x, w: function(x, w, **window), x, w)

    def program(x, w, dy):
        return jax.vjp(lambda x, w: function(x, w, **window), x, w)[1](dy)

    return run_both(program, x, w, values(2, y.shape, dtype))


def kernels(both: Both) -> list[str | None]:
    return sorted(str(region.kernel).removeprefix("onednn.") for region in both.report.regions)


STRIDED = ["deconvolution", "weights_gradient"]
UNSTRIDED = ["convolution", "weights_gradient"]


@pytest.mark.parametrize(
    ("x", "w", "window", "expected"),
    [
        ((2, 14, 14, 16), (3, 3, 16, 32), {}, UNSTRIDED),
        ((2, 14, 14, 16), (3, 3, 16, 32), {"stride": 2}, STRIDED),
        ((2, 15, 14, 16), (3, 3, 16, 32), {"stride": 2, "padding": "VALID"}, STRIDED),
        ((2, 14, 14, 16), (1, 1, 16, 32), {"stride": 2}, STRIDED),
        ((2, 14, 14, 16), (3, 3, 16, 32), {"dilation": 2}, UNSTRIDED),
        ((2, 14, 14, 16), (3, 3, 4, 32), {"groups": 4}, UNSTRIDED),
        ((2, 14, 14, 16), (3, 3, 8, 32), {"groups": 2, "stride": 2}, STRIDED),
        ((2, 14, 14, 16), (3, 3, 1, 16), {"groups": 16}, UNSTRIDED),
        ((1, 14, 14, 16), (3, 3, 1, 16), {"groups": 16}, UNSTRIDED),
        ((2, 14, 14, 16), (3, 3, 1, 16), {"groups": 16, "stride": 2}, STRIDED),
        ((2, 14, 14, 16), (3, 3, 1, 32), {"groups": 16}, UNSTRIDED),
        ((2, 40, 16), (3, 16, 32), {}, UNSTRIDED),
        ((2, 40, 16), (3, 16, 32), {"stride": 2}, STRIDED),
        ((2, 40, 16), (3, 1, 16), {"groups": 16}, UNSTRIDED),
        ((1, 6, 8, 8, 16), (3, 3, 3, 16, 16), {}, UNSTRIDED),
        ((1, 6, 8, 8, 16), (3, 3, 3, 16, 16), {"stride": 2}, STRIDED),
        ((1, 6, 8, 8, 16), (3, 3, 3, 1, 16), {"groups": 16}, UNSTRIDED),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_both_gradients_are_dispatched(x, w, window, expected, dtype):
    both = gradients(x, w, dtype, **window)
    assert kernels(both) == expected
    assert_agree(both)


def test_a_depthwise_gradient_computes_no_other_channels():
    """XLA's dense gradient, select and sum become one call for the diagonal."""
    both = gradients((2, 14, 14, 16), (3, 3, 1, 16), groups=16)
    (gradient,) = (region for region in both.report.regions if region.kernel == "onednn.weights_gradient")
    assert gradient.attributes["diff_weights_dims"] == [16, 1, 1, 3, 3]
    assert "select(" not in both.text
    assert "reduce" not in both.text


@pytest.mark.parametrize("transpose_kernel", [False, True])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("space", "kernel", "stride"), [(1, 3, 2), (2, 3, 2), (2, 4, 2), (2, 2, 3), (2, 1, 2), (3, 3, 2)]
)
def test_transposed_convolutions(space, kernel, stride, padding, transpose_kernel):
    x = values(0, (2, *[7] * space, 16))
    w = values(1, (*[kernel] * space, *((32, 16) if transpose_kernel else (16, 32))))

    def program(x, w, b):
        y = lax.conv_transpose(x, w, (stride,) * space, padding, transpose_kernel=transpose_kernel)
        return jax.nn.relu(y + b)

    both = run_both(program, x, w, values(2, (32,)))
    assert kernels(both) == ["deconvolution"]
    (call,) = both.report.regions
    assert call.formula == "relu(conv_transpose(x, w) + b)"
    assert call.attributes["weights_reversed"] == (0 if transpose_kernel or kernel == 1 else 1)
    assert_agree(both)


@pytest.mark.parametrize(
    ("x", "w", "window"),
    [
        ((2, 7, 7, 16), (3, 3, 16, 32), {}),
        ((2, 7, 7, 16), (3, 3, 16, 32), {"padding": "VALID"}),
        ((2, 7, 6, 16), (4, 4, 32, 16), {"transpose_kernel": True}),
        ((2, 20, 16), (3, 16, 32), {}),
        ((1, 4, 5, 6, 16), (3, 3, 3, 16, 16), {}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_transposed_convolutions(x, w, window, dtype):
    """XLA exchanges the operands of the weights' gradient, and reads both of them backwards."""

    def function(x, w, padding="SAME", transpose_kernel=False):
        strides = (2,) * (x.ndim - 2)
        return lax.conv_transpose(x, w, strides, padding, transpose_kernel=transpose_kernel)

    both = gradients(x, w, dtype, function, **window)
    assert kernels(both) == UNSTRIDED
    assert_agree(both)


@pytest.mark.parametrize("channels", [(1, 8), (8, 1), (3, 16)])
def test_gradients_of_transposed_convolutions_of_one_channel(channels):
    """The image of their weights' gradient has one channel and one image: nothing but the stride says what it is."""
    inputs, outputs = channels
    both = gradients((1, 4, 5, 6, inputs), (3, 3, 3, inputs, outputs), function=lambda x, w: lax.conv_general_dilated(
        x, w, (1, 1, 1), [(1, 2)] * 3, lhs_dilation=(2, 2, 2), dimension_numbers=LABELS[3]))  # fmt: skip
    assert len(kernels(both)) == 2
    assert_agree(both)


@pytest.mark.parametrize(("x", "w", "stride"), [
    ((2, 12, 12, 3), (4, 4, 3, 8), 4), ((1, 15, 3), (5, 3, 6), 5), ((1, 14, 13, 3), (4, 3, 3, 8), 4),
    ((1, 12, 3), (5, 3, 6), 2),
])  # fmt: skip
def test_gradients_of_patch_embeddings(x, w, stride):
    """XLA slides the few patches, dilated and backwards, over the larger kernel."""
    both = gradients(x, w, stride=stride, padding="VALID")
    assert "deconvolution" in kernels(both)
    assert_agree(both)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_gradients_of_each_sample(images, order):
    shape = (4, images, 6, 9, 8) if order == "NCHW" else (4, images, 9, 8, 6)
    x, w = values(0, shape), values(1, (3, 3, 6, 5))

    def gradient(x, dy):
        numbers = (order, "HWIO", order)
        return jax.vjp(lambda w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers), w)[1](dy)

    dy = values(2, (4, images, 5, 9, 8) if order == "NCHW" else (4, images, 9, 8, 5))
    both = run_both(jax.vmap(gradient), x, dy)
    if images == 1 and order == "NCHW":  # a sample's channels lie behind those of the one before it
        assert kernels(both) == ["weights_gradient"]
    assert_agree(both)


@pytest.mark.parametrize(("w", "groups"), [((3, 3, 8, 32), 2), ((3, 3, 1, 16), 16)])
def test_gradients_of_grouped_transposed_convolutions(w, groups):
    def function(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), ((2, 1), (2, 1)), lhs_dilation=(2, 2), dimension_numbers=LABELS[2], feature_group_count=groups
        )

    both = gradients((2, 7, 7, 16), w, function=function)
    assert kernels(both) == UNSTRIDED
    assert_agree(both)


@st.composite
def random_convolutions(draw):
    """Shapes and a window of anything JAX calls a convolution, with at least one position of result."""
    space = draw(st.integers(1, 2))
    numbers = st.lists(st.integers(1, 3), min_size=space, max_size=space)
    sizes = draw(st.lists(st.integers(2, 9), min_size=space, max_size=space))
    kernel = draw(st.lists(st.integers(1, 4), min_size=space, max_size=space))
    strides, dilations = draw(numbers), draw(numbers)
    base = [1] * space if draw(st.booleans()) else draw(numbers)
    padding = []
    for axis in range(space):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        whole = (sizes[axis] - 1) * base[axis] + 1
        # Not beyond the window's reach: XLA itself reads past the end of what negative padding crops, and such
        # padding's gradient is negative padding.
        low = draw(st.integers(0, min(3, reach - 1)))
        fitting = max(0, reach - whole - low)
        padding.append((low, draw(st.integers(fitting, max(fitting, min(3, reach - 1))))))
    groups = draw(st.sampled_from([1, 1, 2, 8]))
    outputs = groups * draw(st.sampled_from([1, 2])) if groups == 8 else draw(st.sampled_from([4, 16]))
    x, w = (draw(st.integers(1, 2)), *sizes, 8), (*kernel, 8 // groups, outputs)
    return x, w, strides, padding, base, dilations, groups


@settings(max_examples=20)
@given(random_convolutions())
def test_any_convolution_and_its_gradients(case):
    x, w, strides, padding, base, dilations, groups = case

    def function(x, w):
        return lax.conv_general_dilated(
            x, w, strides, padding, base, dilations, LABELS[x.ndim - 2], feature_group_count=groups
        )

    def program(x, w, dy):
        y, backward = jax.vjp(function, x, w)
        return y, backward(dy)

    y = jax.eval_shape(function, values(0, x), values(1, w))
    assert_agree(run_both(program, values(0, x), values(1, w), values(2, y.shape)))


@st.composite
def kernels_larger_than_their_images(draw):
    space = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(1, 3), min_size=space, max_size=space))
    kernel = draw(st.lists(st.integers(2, 5), min_size=space, max_size=space))
    dilations = draw(st.lists(st.integers(1, 2), min_size=space, max_size=space))
    padding = []
    for size, long, dilation in zip(sizes, kernel, dilations, strict=True):
        reach = (long - 1) * dilation + 1
        low = draw(st.integers(0, reach - 1))
        fitting = max(0, reach - size - low)
        padding.append((low, draw(st.integers(fitting, max(fitting, reach - 1)))))
    return (draw(st.integers(1, 2)), *sizes, 16), (*kernel, 16, 8), padding, dilations


@settings(max_examples=20)
@given(kernels_larger_than_their_images(), st.sampled_from(["float32", "bfloat16"]))
def test_kernels_larger_than_their_images(case, dtype):
    """XLA slides the image over the kernel then; it is dispatched as it was written, epilogue and all."""
    x, w, padding, dilations = case

    def program(x, w, b):
        ones = (1,) * len(padding)
        y = lax.conv_general_dilated(x, w, ones, padding, ones, dilations, LABELS[len(padding)])
        return jax.nn.relu(y + b)

    both = run_both(program, values(0, x, dtype), values(1, w, dtype), values(2, (8,), dtype))
    assert kernels(both) in (["convolution"], ["weights_gradient"])
    assert_agree(both)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_of_a_training_step_are_taken_too(dtype):
    """Only their masks are read once more, and those the results can tell."""
    shapes = {"first": (3, 3, 8, 16), "second": (3, 3, 16, 16), "third": (1, 1, 16, 8)}
    weights = {name: values(number, shape, dtype) * 0.2 for number, (name, shape) in enumerate(shapes.items())}

    def loss(weights, x):
        y = jax.nn.relu(convolve(x, weights["first"]))
        y = jax.nn.relu6(convolve(y, weights["second"]) + y)
        return jnp.sum(convolve(y, weights["third"]) ** 2)

    both = run_both(lambda weights, x: jax.grad(loss)(weights, x), weights, values(9, (2, 9, 10, 8), dtype))
    formulas = [region.formula for region in both.report.regions]
    assert "relu(conv(x, w))" in formulas
    # Where XLA widens bf16 it does so for the product behind this one under another shape, which no mask can read.
    rounded = ["conv(x, w) + r1"] if dtype == "bfloat16" else []
    assert any(formula in formulas for formula in ["clip(0, 6)[conv(x, w) + r1]", *rounded])
    assert_agree(both, 2e-5 if dtype == "float32" else 6e-2)


def test_channels_first():
    """XLA transposes everything to channels last and back; the kernels read it as it is."""

    def function(x, w):
        return lax.conv_general_dilated(x, w, (2, 2), "SAME")

    both = gradients((2, 16, 14, 14), (32, 16, 3, 3), function=function)
    assert kernels(both) == STRIDED
    assert_agree(both)


def test_a_training_step():
    """A small depthwise-separable network: every convolution of the step, forwards and backwards."""
    weights = {
        "first": values(1, (3, 3, 3, 16)) * 0.2,
        "depthwise": values(2, (3, 3, 1, 16)) * 0.2,
        "pointwise": values(3, (1, 1, 16, 32)) * 0.2,
        "last": values(4, (3, 3, 32, 8)) * 0.1,
    }

    def loss(weights, x, target):
        x = jax.nn.relu(convolve(x, weights["first"], 2))
        x = jax.nn.relu(convolve(x, weights["depthwise"], groups=16))
        x = jax.nn.relu(convolve(x, weights["pointwise"]))
        return jnp.mean((convolve(x, weights["last"], 2).mean((1, 2)) - target) ** 2)

    def step(weights, x, target):
        gradient = jax.grad(loss)(weights, x, target)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)

    both = run_both(step, weights, values(5, (4, 24, 24, 3)), values(6, (4, 8)))
    found = kernels(both)
    assert "None" not in found
    assert found.count("weights_gradient") == 4
    assert_agree(both)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "bound",
    [
        lambda y: jnp.clip(y, -0.25, 0.375),
        lambda y: jnp.minimum(y, 0.25),
        lambda y: jnp.maximum(-y, 0.125),
        lambda y: jnp.max(jax.nn.relu(y), axis=(1, 2), keepdims=True) + y,
        lambda y: jnp.sort(y, axis=-1),
    ],
    ids=["clip", "minimum", "maximum", "largest", "sorted"],
)
def test_gradients_that_ask_which_values_are_equal(bound, dtype):
    """In half precision x == max(x, 0) holds only if both were rounded: what a call leaves must be."""
    w, x = values(0, (3, 3, 8, 8), dtype) * 0.3, values(1, (2, 9, 10, 8), dtype)

    def loss(w, x):
        return jnp.mean(bound(convolve(x, w) + x).astype(jnp.float32) ** 2)

    both = run_both(lambda w, x: jax.grad(loss, (0, 1))(w, x), w, x)
    wide = (value.astype(jnp.float32) for value in (w, x))
    exact = run_both(lambda w, x: jax.grad(loss, (0, 1))(w, x), *wide, policy="never")
    for stock, dispatched, wanted in zip(both.stock, both.dispatched, exact.stock, strict=True):
        wanted = wanted.astype(np.float64)
        allowed = 3 * np.abs(stock - wanted).max() + 1e-5 * np.abs(wanted).max()
        assert np.abs(dispatched - wanted).max() <= allowed


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_a_step_in_half_precision_takes_its_bound_along(activation) -> None:
    skip_without("bf16")
    arguments = [values(n, shape, "bfloat16") / 4 for n, shape in enumerate([(32, 48), (48,), (48, 16), (64, 32)])]

    def gradient(*arguments):
        def loss(w, b, v, x):
            y = getattr(jax.nn, activation)(x @ w + b)
            return jnp.sum(jnp.square((y @ v).astype(jnp.promote_types(y.dtype, "float32"))))

        return jax.grad(loss, (0, 1, 2))(*arguments)

    both = run_both(gradient, *arguments)
    formula = "relu(x @ w + b)" if activation == "relu" else "clip(0, 6)[x @ w + b]"
    assert formula in [region.formula for region in both.report.dispatched]
    # Stock rounds between the steps, and its sign is another where a sum is nearly zero: the exact result judges.
    with jax.enable_x64(True):
        exact = gradient(*(np.asarray(argument, np.float64) for argument in arguments))
    for wanted, stock, dispatched in zip(exact, both.stock, both.dispatched, strict=True):
        scale = np.abs(wanted).max()
        errors = [float(np.abs(got.astype(np.float64) - wanted).max() / scale) for got in (dispatched, stock)]
        assert errors[0] <= max(1.5 * errors[1], 3e-2)
