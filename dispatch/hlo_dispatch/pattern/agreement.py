"""Agreement criterion: the error between a region's value and a formula's value at a probe point.

Both finite: the difference is measured against the larger of the formula's magnitude and a scale, which is
1 for |x| >= 1 and |x| itself near zero (never below 1e-8). Constants rounded to single precision and
cancellation in naive spellings stay far below the tolerance by that measure; a different function does not.

Both NaN, or both the same infinity: agreement. Opposite infinities: disagreement, except at x = +-0, where
only the sign of a zero decides.

One of them non-finite, the other not (or the other kind of non-finite): disagreement for |x| < 20, and no
evidence either way at x = NaN, at x = +-inf and for |x| >= 20. There, spellings overflow where the function
does not: x * sigmoid(x) is NaN at -inf, log(1 + exp(x)) is inf at 1000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LENIENT_FROM = 20.0
_SMALLEST_SCALE = 1e-8


@dataclass(frozen=True)
class ErrorMeasure:
    """The part of the error that depends on the probe points alone."""

    scale: np.ndarray
    lenient: np.ndarray
    zero: np.ndarray

    @classmethod
    def at(cls, points: np.ndarray) -> ErrorMeasure:
        magnitude = np.abs(points)
        scale = np.clip(magnitude, _SMALLEST_SCALE, 1.0)
        return cls(scale, ~(magnitude < LENIENT_FROM), points == 0.0)

    def errors(self, region: np.ndarray, formula: np.ndarray) -> np.ndarray:
        """Error per point (last axis); inf is a disagreement beyond every tolerance."""
        errors = np.abs(region - formula) / np.maximum(np.abs(formula), self.scale)
        odd = ~np.isfinite(errors)
        if odd.any():
            self._judge(errors, odd, region, formula)
        return errors

    def _judge(self, errors: np.ndarray, odd: np.ndarray, region: np.ndarray, formula: np.ndarray) -> None:
        both_infinite = np.isinf(region) & np.isinf(formula)
        same = (region == formula) | (np.isnan(region) & np.isnan(formula)) | (both_infinite & self.zero)
        one_sided = ~(np.isfinite(region) & np.isfinite(formula)) & ~both_infinite
        errors[odd] = np.inf
        errors[odd & (same | (one_sided & self.lenient))] = 0.0
