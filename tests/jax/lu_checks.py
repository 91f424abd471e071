"""What the factors of an LU have to be."""

from __future__ import annotations

import numpy as np

LARGEST_RESIDUAL = 3  # in units of size * epsilon * norm


def factors(lu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = lu.shape[-2:]
    least = min(rows, columns)
    wide = lu.astype(np.float64)
    return np.tril(wide, -1)[..., :least] + np.eye(rows, least), np.triu(wide)[..., :least, :]


def check_factors(a: np.ndarray, lu: np.ndarray, permutation: np.ndarray) -> None:
    """Multiplied they are `a` in its new order; one by one they differ from stock's as far as `a` is singular."""
    lower, upper = factors(lu)
    assert np.abs(lower).max() <= 1
    expected = np.take_along_axis(a.astype(np.float64), permutation[..., None], -2)
    bound = LARGEST_RESIDUAL * max(a.shape[1:]) * np.finfo(a.dtype).eps * np.linalg.norm(a, axis=(-2, -1))
    assert np.all(np.linalg.norm(lower @ upper - expected, axis=(-2, -1)) <= bound)
