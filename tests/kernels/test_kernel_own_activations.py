"""Functions of one variable behind products of our own kernels, against float64: everywhere, parts of vectors too."""

from __future__ import annotations

import numpy as np
import pytest
from quantized_matmul_calls import quantized_matmul

_SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 200.0, -200.0, 88.0, -88.0, 1e-20, -1e-20]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("algorithm", "alpha", "formula", "allowed"),
    [
        ("logistic", 0.0, _sigmoid, 1e-37),
        ("swish", 1.0, lambda x: x * _sigmoid(x), 1e-35),
        ("swish", -1.702, lambda x: x * _sigmoid(-1.702 * x), 1e-35),
        ("tanh", 0.0, np.tanh, 0.0),
        ("gelu_tanh", 0.0, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), 2e-6),
    ],
)
def test_numbers(algorithm: str, alpha: float, formula, allowed: float) -> None:
    """One row times a matrix of one row: the products are the numbers themselves."""
    x = np.concatenate([_SPECIAL, np.linspace(-20, 20, 2000), np.logspace(-8, 4, 90)]).astype(np.float32)
    product = quantized_matmul(1, 1, len(x), kind="f32")
    product.call.operands[:] = [np.ones((1, 1), np.float32), x[None]]
    product.call.eltwise(algorithm, alpha)
    # An exponent is rounded in f32 before 2 is raised to it.
    with np.errstate(all="ignore"):
        expected = formula(x.astype(np.float64))
    np.testing.assert_allclose(product.call.run()[0], expected, rtol=1e-5, atol=allowed)
