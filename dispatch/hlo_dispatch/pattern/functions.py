"""Function whitelist: every name that a formula may use.

All of them work on NumPy float64 arrays and scalars, and none has a side effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_dispatch.analysis.scalar_constants import logistic, rsqrt


@dataclass(frozen=True)
class Function:
    """One whitelisted function."""

    evaluate: Callable[..., Any]
    arity: int
    """Number of arguments; the minimum for a variadic function."""
    variadic: bool = False
    conditions: tuple[int, ...] = ()
    """Positions of the arguments that are conditions, not numbers."""
    yields_condition: bool = False


def _elementwise(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """Lift a scalar function of `math`: NumPy has no erf, and SciPy costs 100 ms to import for just that."""

    def evaluate(x: Any) -> Any:
        array = np.asarray(x, dtype=np.float64)
        values = np.fromiter(map(function, array.ravel().tolist()), np.float64, array.size)
        return values.reshape(array.shape)[()]

    return evaluate


def _softplus(x: Any) -> Any:
    return np.logaddexp(0.0, x)


def _clip(x: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _maximum(*values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        result = np.maximum(result, value)
    return result


def _minimum(*values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        result = np.minimum(result, value)
    return result


FUNCTIONS: dict[str, Function] = {
    "abs": Function(np.abs, 1),
    "cbrt": Function(np.cbrt, 1),
    "ceil": Function(np.ceil, 1),
    "clip": Function(_clip, 3),
    "cos": Function(np.cos, 1),
    "erf": Function(_elementwise(math.erf), 1),
    "erfc": Function(_elementwise(math.erfc), 1),
    "exp": Function(np.exp, 1),
    "expm1": Function(np.expm1, 1),
    "floor": Function(np.floor, 1),
    "isfinite": Function(np.isfinite, 1, yields_condition=True),
    "log": Function(np.log, 1),
    "log1p": Function(np.log1p, 1),
    "log2": Function(np.log2, 1),
    "max": Function(_maximum, 2, variadic=True),
    "min": Function(_minimum, 2, variadic=True),
    "pow": Function(np.power, 2),
    "round": Function(np.rint, 1),
    "rsqrt": Function(rsqrt, 1),
    "sigmoid": Function(logistic, 1),
    "sign": Function(np.sign, 1),
    "sin": Function(np.sin, 1),
    "softplus": Function(_softplus, 1),
    "sqrt": Function(np.sqrt, 1),
    "tanh": Function(np.tanh, 1),
    "where": Function(np.where, 3, conditions=(0,)),
}

CONSTANTS: dict[str, float] = {"pi": math.pi, "inf": math.inf}
