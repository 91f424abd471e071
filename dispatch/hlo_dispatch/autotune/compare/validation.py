"""Validation of a candidate's results: against stock XLA's, and against a float64 reference where the two differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# Two right results may both deviate by the tolerance.
_BOTH = 2.0
# Comparisons of two values that are almost equal may fall either way.
_FLIPS = 1e-2
# Deviation of stock from float64 that means a wrong result: in tolerances, and relative to the largest value.
_WRONG = 10.0
_LEAST_WRONG = 1e-2


@dataclass(frozen=True)
class Difference:
    """Largest deviation of a candidate's results from a reference; falsy where it is within the tolerance."""

    value: float
    """Largest difference over the largest value, for the worst result; infinite where NaN or infinity differ."""
    result: int
    """Number of the worst result."""
    tolerance: float
    stock_error: float = 0.0
    """Deviation of stock's results from float64, where they are wrong and the candidate's are right."""

    def __bool__(self) -> bool:
        # Written so that NaN is a difference.
        return not self.value <= self.tolerance


def difference(expected: Sequence[Any], actual: Sequence[Any], tolerance: float) -> Difference:
    """The largest difference of any result; `tolerance` is relative to a result's largest value."""
    worst = Difference(0.0, 0, tolerance)
    for number, (reference, got) in enumerate(zip(expected, actual, strict=True)):
        value = _difference(np.asarray(reference), np.asarray(got), tolerance)
        if not value <= worst.value:
            worst = Difference(value, number, tolerance)
    return worst


def _difference(expected: Any, got: Any, tolerance: float) -> float:
    if expected.dtype.kind in "iu" and expected.dtype.itemsize == 1 and expected.size:
        # Values rounded to 8-bit integers: one near the middle of two may become either.
        if np.abs(expected.astype(np.int16) - got.astype(np.int16)).max() > 1:
            return float("inf")
    if expected.dtype.kind in "biu":
        differing: Any = np.count_nonzero(expected != got)
        share = float(differing / expected.size) if expected.size else 0.0
        return 0.0 if share <= _FLIPS else share
    if expected.dtype == got.dtype == np.float32:
        quick = _quick_difference(expected, got)
        if quick is not None:
            return quick
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    expected, got = expected.astype(kind), got.astype(kind)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    if not np.array_equal(expected[~finite], got[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.max(np.abs(expected[finite]))) or 1.0
    return float(np.max(np.abs(expected[finite] - got[finite]))) / scale


def _quick_difference(expected: Any, got: Any) -> float | None:
    """The same without a copy in double precision; None where a value is not finite."""
    with np.errstate(invalid="ignore"):
        # NumPy's result of scalars is no array that could be written to.
        deviation = np.atleast_1d(np.subtract(expected, got))
    np.abs(deviation, out=deviation)
    largest, scale = float(deviation.max(initial=0)), float(max(expected.max(initial=0), -expected.min(initial=0)))
    return largest / (scale or 1.0) if np.isfinite(largest) and np.isfinite(scale) else None


def judge(
    stock: Sequence[Any],
    candidate: Sequence[Any],
    tolerance: float,
    in_float64: Callable[[], Sequence[Any] | None],
) -> Difference:
    """Validate a candidate.

    Args:
        in_float64: returns the results in float64, or None; they decide where candidate and stock differ.
    """
    deviation = difference(stock, candidate, _BOTH * tolerance)
    exact = in_float64() if deviation else None
    if exact is None:
        return deviation
    own = difference(exact, candidate, tolerance)
    stocks = difference(exact, stock, max(_WRONG * tolerance, _LEAST_WRONG))
    if not own:
        return replace(own, stock_error=stocks.value if stocks else 0.0)
    # Stock rounds as well: the candidate need not be much more exact than stock.
    return Difference(own.value, own.result, max(tolerance, 2 * stocks.value))


def is_finite(values: Sequence[Any]) -> bool:
    """Whether all floating values are finite."""
    return all(_is_finite(array) for array in map(np.asarray, values) if array.dtype.kind not in "biu")


def _is_finite(array: Any) -> bool:
    if array.dtype == np.float32:
        # NaN and infinity reach the extremes.
        return bool(np.isfinite(array.max(initial=0)) and np.isfinite(array.min(initial=0)))
    return bool(np.isfinite(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)).all())
