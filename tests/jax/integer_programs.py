"""Programs of 8-bit integers: dispatched results, float64 results, and where rounding is ambiguous."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_dispatch
from hlo_dispatch.report import Region


def exact(function: Any, *arguments: Any) -> np.ndarray:
    """In float64, by stock XLA."""
    with jax.enable_x64(True), hlo_dispatch.enabled(policy="never"):
        return np.asarray(jax.jit(function)(*(jnp.asarray(a, "float64") for a in arguments)))


def dispatched(function: Any, *arguments: Any) -> tuple[np.ndarray, list[Region]]:
    """The result, and what became calls."""
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(function).lower(*arguments).compile()
        report = hlo_dispatch.reports()[-1]
        result = np.asarray(compiled(*arguments))
    return result, [region for region in report.regions if region.kernel]


def almost(found: np.ndarray, unrounded: np.ndarray, least: int | None = None, most: int | None = None) -> None:
    """Rounded to the nearest integer, within the type's bounds or these; either one where the value almost lies between
    two."""
    bounds = np.iinfo(found.dtype)
    assert bounds.bits == np.iinfo(np.int8).bits
    low, high = (
        np.clip(np.rint(unrounded + by), bounds.min if least is None else least, bounds.max if most is None else most)
        for by in (-1e-3, 1e-3)
    )
    assert ((found == low) | (found == high)).all()
