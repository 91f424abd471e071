"""Activations in the spellings of real programs; NumPy stands in for the engine's float64 evaluation.

`c` rounds a constant as the program's element type would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Round = Callable[[float], float]
Spelling = Callable[[np.ndarray, Round], np.ndarray]

erf = np.vectorize(math.erf, otypes=[np.float64])


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def polynomial(x: Any, *coefficients: float) -> Any:
    result = np.zeros_like(x)
    for coefficient in coefficients:
        result = result * x + np.float64(np.float32(coefficient))
    return result


def xla_erfc(x: np.ndarray) -> np.ndarray:
    """The expansion XLA writes into the module for an f32 erfc."""
    square, magnitude = x * x, np.abs(x)
    small = 1 - x * polynomial(
        square, 7.85386146e-05, -0.000801019371, 0.00518832775, -0.0268538129, 0.112835854, -0.37612626, 1.12837911
    )
    inverse = 1 / square
    near = polynomial(
        inverse, 0.0232682, -0.138703942, 0.368742466, -0.582473278, 0.621000469, -0.494451523, 0.340488,
        -0.274112701, 0.563825965,
    )  # fmt: skip
    far = polynomial(
        inverse, -10.477664, 12.9772, -7.49551868, 2.92101908, -1.01526523, 0.42184633, -0.282076746, 0.564189494
    )
    tail = np.exp(-square) * (1 / magnitude) * np.where(magnitude < 2, near, far)
    tail = np.where(-square < np.float64(np.float32(-88.7228394)), 0, tail)
    return np.where(magnitude < 1, small, np.where(x < 0, 2 - tail, tail))


SPELLINGS: dict[str, list[Spelling]] = {
    "relu": [
        lambda x, c: np.maximum(x, 0),
        lambda x, c: np.where(x > 0, x, 0),
        lambda x, c: (x + np.abs(x)) * 0.5,
        lambda x, c: -np.minimum(-x, 0),
        lambda x, c: x * (x > 0),
    ],
    "abs": [
        lambda x, c: np.abs(x),
        lambda x, c: np.where(x < 0, -x, x),
        lambda x, c: np.maximum(x, -x),
    ],
    "square": [lambda x, c: x * x, lambda x, c: x**2, lambda x, c: np.abs(x) * np.abs(x)],
    "sqrt": [lambda x, c: np.sqrt(x), lambda x, c: x**0.5, lambda x, c: np.abs(np.sqrt(x))],
    "exp": [lambda x, c: np.exp(x), lambda x, c: 1 / np.exp(-x), lambda x, c: np.expm1(x) + 1],
    "log": [lambda x, c: np.log(x), lambda x, c: np.log(2 * x) - np.log(2), lambda x, c: 2 * np.log(np.sqrt(x))],
    "round": [lambda x, c: np.rint(x), lambda x, c: np.round(x), lambda x, c: -np.rint(-x)],
    "tanh": [
        lambda x, c: np.tanh(x),
        lambda x, c: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1),
        lambda x, c: 2 * logistic(2 * x) - 1,
        lambda x, c: 1 - 2 / (1 + np.exp(2 * x)),
    ],
    "sigmoid": [
        lambda x, c: logistic(x),
        lambda x, c: np.exp(x) / (1 + np.exp(x)),
        lambda x, c: 0.5 + 0.5 * np.tanh(0.5 * x),
        lambda x, c: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x))),
    ],
    "gelu_tanh": [
        lambda x, c: 0.5 * x * (1 + np.tanh(c(math.sqrt(2 / math.pi)) * (x + c(0.044715) * x**3))),
        lambda x, c: x * (0.5 * (1 + np.tanh(c(0.7978845608) * x * (1 + c(0.044715) * x * x)))),
        lambda x, c: x * logistic(c(1.5957691216) * (x + c(0.044715) * x**3)),
        lambda x, c: (0.5 * x) + (0.5 * x) * np.tanh(c(0.7978845608) * x + c(0.7978845608 * 0.044715) * x * x * x),
    ],
    "gelu_erf": [
        lambda x, c: 0.5 * x * (1 + erf(x * c(1 / math.sqrt(2)))),
        lambda x, c: x * (1 + erf(x / c(math.sqrt(2)))) / 2,
        lambda x, c: 0.5 * x * xla_erfc(-x * c(math.sqrt(0.5))),
        lambda x, c: x - 0.5 * x * (1 - erf(x * c(math.sqrt(0.5)))),
    ],
    "mish": [
        lambda x, c: x * np.tanh(np.log1p(np.exp(x))),
        lambda x, c: x * np.tanh(np.logaddexp(x, 0)),
        lambda x, c: x * ((1 + np.exp(x)) ** 2 - 1) / ((1 + np.exp(x)) ** 2 + 1),
        lambda x, c: x * (np.exp(2 * x) + 2 * np.exp(x)) / (np.exp(2 * x) + 2 * np.exp(x) + 2),
    ],
    "clip(0, 6)": [
        lambda x, c: np.minimum(np.maximum(x, 0), 6),
        lambda x, c: np.maximum(np.minimum(x, 6), 0),
        lambda x, c: np.where(x > 6, 6, np.where(x < 0, 0, x)),
        lambda x, c: np.clip(x + 3, 3, 9) - 3,
    ],
    "leaky_relu(0.01)": [
        lambda x, c: np.where(x >= 0, x, c(0.01) * x),
        lambda x, c: np.maximum(x, c(0.01) * x),
        lambda x, c: np.maximum(x, 0) + c(0.01) * np.minimum(x, 0),
    ],
    "elu(1)": [
        lambda x, c: np.where(x > 0, x, np.expm1(np.where(x > 0, 0, x))),
        lambda x, c: np.where(x > 0, x, np.exp(x) - 1),
        lambda x, c: np.maximum(x, 0) + np.minimum(np.exp(x) - 1, 0),
    ],
    "swish(1)": [
        lambda x, c: x * logistic(x),
        lambda x, c: x / (1 + np.exp(-x)),
        lambda x, c: 0.5 * x * (1 + np.tanh(0.5 * x)),
        lambda x, c: np.exp(x) * x / (np.exp(x) + 1),
    ],
    "softplus(1)": [
        lambda x, c: np.log1p(np.exp(x)),
        lambda x, c: np.log(1 + np.exp(x)),
        lambda x, c: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    ],
    "softplus(-1)": [
        lambda x, c: -np.log1p(np.exp(-x)),
        lambda x, c: np.log(logistic(x)),
        lambda x, c: x - np.logaddexp(0, x),
    ],
    "linear(0.125, 0.5)": [
        lambda x, c: x * 0.125 + 0.5,
        lambda x, c: (x + 4) / 8,
        lambda x, c: 1 - (4 - x) * 0.125,
    ],
    "linear(-1, 0)": [lambda x, c: -x, lambda x, c: 0 - x, lambda x, c: x * -1],
    "hard_sigmoid(0.25, 0.5)": [
        lambda x, c: np.clip(0.25 * x + 0.5, 0, 1),
        lambda x, c: np.minimum(np.maximum(x + 2, 0), 4) / 4,
        lambda x, c: np.where(x < -2, 0, np.where(x > 2, 1, x * 0.25 + 0.5)),
    ],
    "hard_swish(0.25, 0.5)": [
        lambda x, c: x * np.clip(0.25 * x + 0.5, 0, 1),
        lambda x, c: x * np.minimum(np.maximum(x + 2, 0), 4) / 4,
        lambda x, c: np.where(x < -2, 0, np.where(x > 2, x, x * (x * 0.25 + 0.5))),
    ],
    "pow(1, -0.5)": [lambda x, c: 1 / np.sqrt(x), lambda x, c: x**-0.5, lambda x, c: np.exp(-0.5 * np.log(x))],
    "pow(1, -1)": [lambda x, c: 1 / x, lambda x, c: x**-1.0, lambda x, c: 4 / (4 * x)],
    "pow(1, 3)": [lambda x, c: x * x * x, lambda x, c: x**3, lambda x, c: np.abs(x) ** 3 * np.sign(x)],
    "identity": [
        lambda x, c: x + 0,
        lambda x, c: 0 - (0 - x),
        lambda x, c: np.where(x > 0, x, x),
        lambda x, c: (x * 4) / 4,
    ],
}
