"""How strongly paired samples say that a difference is more than zero: a sequential test, to be asked at any time.

Half of the error that is allowed goes to a look at the first few samples, which is Student's t-test, and half to all
samples so far, as long as one likes. `evidence` of those is an e-value: where there is no such difference its
expectation is at most 1 whenever one stops, so that it reaches 1 / p with probability p at most, however often it was
looked at (Ville's inequality; Ramdas, Grünwald, Vovk, Shafer: Game-theoretic statistics and safe anytime-valid
inference, Statistical Science 38, 2023). It is the mean of three, which is one again:

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
"""The chance that a difference is believed which is none."""
_FIRST_LOOK = {2: 63.657, 3: 9.925, 4: 5.841, 5: 4.604}
"""Samples → Student's t that is exceeded by chance with half of that, one-sided."""
_VARIANCES = (1.0, 25.0)
_FINEST = 1e-9
"""A scatter, in parts of the mean, that is told from none."""
_LARGEST = 300.0
"""Logarithm of the largest e-value that is told from a larger one."""


def is_shown(differences: Sequence[float], first: int) -> bool:
    """Whether they are more than zero, but for chance.

    Args:
        first: after so many of them (2 to 5) one looked first.
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
    """The mean over its own error; at least two values."""
    count = len(values)
    mean = math.fsum(values) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return mean * count**0.5 / max(spread, _FINEST * abs(mean), sys.float_info.min)
