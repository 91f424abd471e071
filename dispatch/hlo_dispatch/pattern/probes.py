"""Probe points at which a region and a formula are compared.

Sound recognition needs points wherever two functions could differ and still look alike: around zero
(signs, subnormals), densely where activations bend, log-spaced out to the end of single precision,
between and on both sides of every constant found in the region, and the special values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

FLOAT32_MAX = float(np.finfo(np.float32).max)

_STEP = 0.25  # halves are on the grid, so round-to-even is told from round-away
_DENSE = np.arange(-8.0, 8.0 + _STEP, _STEP)
_LARGE = np.array([10.1, 12.7, 16.3, 20.0, 33.3, 50.0, 87.0, 89.0, 104.0, 301.0, 745.0, 1e3])
_DECADES = 10.0 ** np.array([-40, -30, -20, -15, -12, -9, -7, -5, -4, -3, -2, -1, 4, 5, 7, 9, 12, 15, 20, 30, 38])
_ODD = np.array([1.7e-3, 0.0317, 0.1234, 0.3333, 0.618, 0.7071, 1.1283, 1.4142, 2.3562, 2.7183, 3.1416, 4.4429, 6.2832])
_MAGNITUDES = np.concatenate([_LARGE, _DECADES, _ODD, [FLOAT32_MAX]])
_SPECIAL = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf])
_AROUND = np.array([1.0, 1.0 - 1e-5, 1.0 + 1e-5, 0.9, 1.1])
_MOST_CONSTANTS = 32
"""Maximum number of bracketed constants: a polynomial's coefficients are not breakpoints anyway."""

_FEW_CONSTANTS = 4
"""Up to so many, what they combine to may be a breakpoint as well."""


def fixed_probes(samples: Iterable[float]) -> np.ndarray:
    """The probes for every region: the samples first, in their order, then the others."""
    return np.concatenate([np.array(list(samples)), _SPECIAL, _MAGNITUDES, -_MAGNITUDES, _DENSE])


def probes_around(constants: Sequence[float]) -> np.ndarray:
    """Probes on both sides of each constant and of its negative, and between any two neighbours.

    Of a few constants their sums, differences, products and quotients count as neighbours too: the kinks of
    `relu6(3 * x - 100)` are at quotients.
    """
    finite = dict.fromkeys(abs(c) for c in constants if np.isfinite(c) and c != 0.0 and abs(c) <= FLOAT32_MAX)
    magnitudes = np.array(list(finite)[:_MOST_CONSTANTS])
    if magnitudes.size == 0:
        return magnitudes
    kinks = np.concatenate([magnitudes, _combined(magnitudes)]) if magnitudes.size <= _FEW_CONSTANTS else magnitudes
    kinks = np.unique(kinks)
    between = (kinks[1:] + kinks[:-1]) / 2
    positive = np.concatenate([np.outer(magnitudes, _AROUND).ravel(), kinks, between])
    positive = positive[positive <= FLOAT32_MAX]
    return np.concatenate([positive, -positive])


def _combined(magnitudes: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(magnitudes.size, 1)
    a, b = magnitudes[first], magnitudes[second]
    with np.errstate(over="ignore"):
        combined = np.concatenate([a + b, np.abs(a - b), a * b, a / b, b / a])
    return combined[(combined > 0) & (combined <= FLOAT32_MAX)]
