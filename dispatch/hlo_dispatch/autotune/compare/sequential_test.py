"""Sequential test with e-values: whether paired differences are more than zero, valid at any stopping time.

Half of the allowed error goes to one look at the first few samples, Student's t-test, and half to repeated looks at all
samples so far. `evidence` of those is an e-value: where there is no such difference, its expectation is at most 1
at any stopping time, so it reaches 1 / p with probability at most p, however often it is computed (Ville's
inequality; Ramdas, Grünwald, Vovk, Shafer: Game-theoretic statistics and safe anytime-valid
inference, Statistical Science 38, 2023). It is the mean of three e-values:

- the sign test's, which assumes nothing of how the samples scatter: k of n are positive, and the chance p that one is
  has a uniform prior above 1/2: the integral of 2 (2p)^k (2 - 2p)^(n-k), which is the sum of C(n+1, j) for j up to k,
  over (n+1) C(n, k). Twelve samples that agree are enough, however noisy they are.
- Student's t, twice: the mean over its deviation has a normal prior with variance g, and the deviation Jeffreys's:
  (1 + ng)^(-1/2) ((1 + t²/v) / (1 + t²/(v (1 + ng))))^(n/2) with v = n - 1 (Pérez-Ortiz, Lardy, de Heide, Grünwald:
  E-statistics, group invariance and anytime-valid testing, Annals of Statistics 52, 2024). With g = 25 few samples
  decide what is much larger than its scatter; with g = 1 many decide what is about as large.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence

ERROR = 0.01
"""Probability of a false positive."""
_FIRST_LOOK = {2: 63.657, 3: 9.925, 4: 5.841, 5: 4.604}
"""Samples → one-sided critical value of Student's t at half of that."""
_VARIANCES = (1.0, 25.0)
_FINEST = 1e-9
"""Smallest standard deviation, as a fraction of the mean."""
_LARGEST = 300.0
"""Logarithm of the largest e-value."""


def is_shown(differences: Sequence[float], first: int) -> bool:
    """Whether the differences are significantly more than zero.

    Args:
        first: number of samples (2 to 5) at the first look.
    """
    if len(differences) >= first and _student(differences[:first]) > _FIRST_LOOK[first]:
        return True
    return evidence(differences) >= 2 / ERROR


def evidence(differences: Sequence[float]) -> float:
    """The e-value of the differences (at least one) being more than zero."""
    parts = [_by_signs(differences), *(_by_size(differences, variance) for variance in _VARIANCES)]
    return statistics.fmean(parts)


def _by_signs(differences: Sequence[float]) -> float:
    count, positive = len(differences), sum(value > 0 for value in differences)
    below = term = 1.0
    for number in range(1, positive + 1):
        term *= (count + 2 - number) / number
        below += term
    return below / ((count + 1) * math.comb(count, positive))


def _by_size(differences: Sequence[float], variance: float) -> float:
    count = len(differences)
    if count < 2:
        return 1.0
    student = _student(differences)
    if student <= 0:
        return 0.0  # the formula is two-sided
    ratio, wider = student**2 / (count - 1), 1 + count * variance
    gained = math.log((1 + ratio) / (1 + ratio / wider))
    return math.exp(min(_LARGEST, count / 2 * gained - math.log(wider) / 2))


def _student(values: Sequence[float]) -> float:
    """Student's t: the mean over its standard error; at least two values."""
    count = len(values)
    mean = math.fsum(values) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return mean * count**0.5 / max(spread, _FINEST * abs(mean), sys.float_info.min)
