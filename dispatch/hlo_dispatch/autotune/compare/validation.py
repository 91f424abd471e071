"""Is a candidate's result right: compared with stock XLA's, and with float64 where the two differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# Between two right results: each may be wrong by the tolerance.
_BOTH = 2.0
# Comparisons of two values that are almost equal may fall either way.
_FLIPS = 1e-2
# Stock is not merely less exact, but wrong: so many tolerances from float64, and so much of the largest value.
_WRONG = 10.0
_LEAST_WRONG = 1e-2


@dataclass(frozen=True)
class Difference:
    """How far a candidate's results are from others; falsy where they agree."""

    value: float
    """Largest difference over the largest value, of the worst result; infinite where NaN or infinity differ."""
    result: int
    """Which result that is."""
    tolerance: float
    stock_error: float = 0.0
    """How far stock's results are from float64's, where they are wrong and the candidate's are right."""

    def __bool__(self) -> bool:
        # Written so that NaN is a difference.
        return not self.value <= self.tolerance


def difference(expected: Sequence[Any], actual: Sequence[Any], tolerance: float) -> Difference:
    """The largest difference of any result; `tolerance` is relative to a result's largest value."""
    worst = Difference(0.0, 0, tolerance)
    for number, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
        value = _difference(np.asarray(wanted), np.asarray(got), tolerance)
        if not value <= worst.value:
            worst = Difference(value, number, tolerance)
    return worst


def _difference(wanted: Any, got: Any, tolerance: float) -> float:
    if wanted.dtype.kind in "iu" and wanted.dtype.itemsize == 1 and wanted.size:
        # Numbers rounded to integers of eight bits: what almost lies between two of them may be either.
        if np.abs(wanted.astype(np.int16) - got.astype(np.int16)).max() > 1:
            return float("inf")
    if wanted.dtype.kind in "biu":
        differing: Any = np.count_nonzero(wanted != got)
        share = float(differing / wanted.size) if wanted.size else 0.0
        return 0.0 if share <= _FLIPS else share
    if wanted.dtype == got.dtype == np.float32:
        quick = _quick_difference(wanted, got)
        if quick is not None:
            return quick
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    wanted, got = wanted.astype(kind), got.astype(kind)
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    if not np.array_equal(wanted[~finite], got[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.max(np.abs(wanted[finite]))) or 1.0
    return float(np.max(np.abs(wanted[finite] - got[finite]))) / scale


def _quick_difference(wanted: Any, got: Any) -> float | None:
    """The same without a copy in double precision; None where something is not finite."""
    with np.errstate(invalid="ignore"):
        # Of scalars NumPy makes no array that could be written to.
        apart = np.atleast_1d(np.subtract(wanted, got))
    np.abs(apart, out=apart)
    largest, scale = float(apart.max(initial=0)), float(max(wanted.max(initial=0), -wanted.min(initial=0)))
    return largest / (scale or 1.0) if np.isfinite(largest) and np.isfinite(scale) else None


def judge(
    stock: Sequence[Any],
    candidate: Sequence[Any],
    tolerance: float,
    in_float64: Callable[[], Sequence[Any] | None],
) -> Difference:
    """The verdict on a candidate.

    Args:
        in_double: gives the results in float64, where they can be had; they decide where candidate and stock differ.
    """
    apart = difference(stock, candidate, _BOTH * tolerance)
    exact = in_float64() if apart else None
    if exact is None:
        return apart
    own = difference(exact, candidate, tolerance)
    stocks = difference(exact, stock, max(_WRONG * tolerance, _LEAST_WRONG))
    if not own:
        return replace(own, stock_error=stocks.value if stocks else 0.0)
    # Stock rounds as well: nobody is asked to be much nearer to the truth than it.
    return Difference(own.value, own.result, max(tolerance, 2 * stocks.value))


def is_finite(values: Sequence[Any]) -> bool:
    """Whether all floating values are finite."""
    return all(_is_finite(array) for array in map(np.asarray, values) if array.dtype.kind not in "biu")


def _is_finite(array: Any) -> bool:
    if array.dtype == np.float32:
        # NaN and infinity reach the extremes.
        return bool(np.isfinite(array.max(initial=0)) and np.isfinite(array.min(initial=0)))
    return bool(np.isfinite(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)).all())
