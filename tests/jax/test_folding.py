"""Scales and shifts that move into the weights and the bias: the same numbers, one convolution, no scale left."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.selection import family_cost_models
from side_by_side import assert_agree, run_both

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

ORDERS = {
    "scale": lambda y, v: y * v[0],
    "bias, scale": lambda y, v: (y + v[0]) * v[1],
    "scale, shift": lambda y, v: y * v[0] + v[1],
    "mean, scale, shift": lambda y, v: (y - v[0]) * v[1] + v[2],
    "two scales between shifts": lambda y, v: ((y + v[0]) * v[1] - v[2]) * v[3],
    "scale of its own making": lambda y, v: y * (v[0] * jax.lax.rsqrt(jnp.abs(v[1]) + 1e-3)) + v[2],
}
# (input channels, output channels, groups, window)
CONVOLUTIONS = {
    "dense": (5, 7, 1, 3),
    "pointwise": (16, 24, 1, 1),
    "depthwise": (17, 17, 17, 3),
    "grouped": (8, 12, 4, 2),
}


@pytest.fixture(autouse=True)
def _always_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_cost_models, "is_worth_folding", lambda match: True)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_folded(kind: str, order: str) -> None:
    inputs, outputs, groups, window = CONVOLUTIONS[kind]
    random = np.random.default_rng(len(kind) * 31 + len(order))

    def array(*shape: int) -> jax.Array:
        return jnp.asarray(random.standard_normal(shape), jnp.float32)

    def function(x, w, residual, *vectors):
        y = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )
        return jax.nn.relu(ORDERS[order](y, vectors) + residual)

    arguments = (
        array(2, 9, 11, inputs),
        array(window, window, inputs // groups, outputs),
        array(2, 9, 11, outputs),
        *(array(outputs) for _ in range(4)),
    )
    both = run_both(function, *arguments)
    assert_agree(both)
    (region,) = both.report.regions
    assert "w·s" in region.formula
    assert " · v" not in region.formula


def test_without_a_scale_nothing_is_folded() -> None:
    x, w, b = (jnp.ones(shape, jnp.float32) for shape in ((1, 8, 8, 4), (3, 3, 4, 8), (8,)))

    def function(x, w, b):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b

    (region,) = run_both(function, x, w, b).report.regions
    assert "w·s" not in region.formula


@pytest.mark.parametrize("dtype", ["bfloat16"])
@pytest.mark.parametrize("order", ["bias, scale", "mean, scale, shift", "scale of its own making"])
@pytest.mark.parametrize(("kind", "is_reshaped"), [*((kind, False) for kind in CONVOLUTIONS), ("depthwise", True)])
def test_frozen_weights_of_half_precision(kind: str, is_reshaped: bool, order: str, dtype: str) -> None:
    inputs, outputs, groups, window = CONVOLUTIONS[kind]
    random = np.random.default_rng(len(kind) * 31 + len(order))
    rounded = (np.asarray(random.standard_normal(shape), jnp.dtype(dtype)) for shape in [
        (2, 9, 11, inputs), (window, window, inputs // groups, outputs), *[(outputs,)] * 4])  # fmt: skip
    x, w, *vectors = rounded
    shape = w.shape
    if is_reshaped:  # as Keras has the weights of a depthwise convolution
        w = w.reshape(window, window, outputs, inputs // groups)

    def function(frozen, x):
        w, *vectors = frozen
        w = w.reshape(shape)
        y = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )
        return jax.nn.relu(ORDERS[order](y.astype(jnp.float32), vectors)).astype(x.dtype)

    fast = hlo_dispatch.freeze(function, (w, *vectors))
    with hlo_dispatch.enabled(policy="always"):
        found = np.asarray(fast(x), np.float64)
    (region,) = fast.report.programs[0].dispatched.dispatched
    assert "w·s" in region.formula
    assert "post_op_1" not in region.attributes
    exact = np.asarray(function([v.astype(np.float32) for v in (w, *vectors)], x.astype(np.float32)), np.float64)
    stock = np.asarray(jax.jit(function)([w, *vectors], x), np.float64)
    # Rounded weights are as far from the numbers as rounded results are.
    allowed = 2 * np.sqrt(((stock - exact) ** 2).mean()) + 2**-9 * np.sqrt((exact**2).mean())
    assert np.sqrt(((found - exact) ** 2).mean()) <= allowed


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_weights_of_half_precision_that_are_not_frozen_stay(dtype: str) -> None:
    arrays = [np.random.default_rng(n).standard_normal(shape).astype(jnp.dtype(dtype)) for n, shape in
              enumerate([(1, 9, 8, 16), (3, 3, 16, 24), (24,)])]  # fmt: skip

    def function(x, w, v):
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return y.astype(jnp.float32) * v

    both = run_both(function, *arrays)
    assert_agree(both, 2e-2)
    assert all("w·s" not in region.formula for region in both.report.regions)
