"""Scales and shifts that move into the weights and the bias: the same numbers, one convolution, no scale left."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlo_dispatch.policy import rules
from side_by_side import assert_agree, run_both

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
    monkeypatch.setattr(rules, "worth_folding", lambda match: True)


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
