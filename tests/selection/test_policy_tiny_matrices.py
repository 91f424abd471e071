"""Cost model of batches of tiny matrices: without measurements only code that works on many at once takes them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import kernels as vendor
from processor import needs_avx512

ROUTINES: dict[str, Callable] = {
    "cholesky": jnp.linalg.cholesky,
    "lu": lambda a: jax.lax.linalg.lu(a)[:2],
    "triangular_solve": lambda a: jax.lax.linalg.triangular_solve(a, a, left_side=True, lower=True),
    "qr": jnp.linalg.qr,
    "eigh": jnp.linalg.eigh,
    "eigvalsh": jnp.linalg.eigvalsh,
    "svd": jnp.linalg.svd,
}


def kernels(routine: str, size: int) -> list[str]:
    with hlo_dispatch.enabled(policy="heuristic"):
        report = hlo_dispatch.explain(ROUTINES[routine], np.ones((20_000 // size, size, size), np.float32))
    return [region.kernel for region in report.dispatched if region.kernel is not None]


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("routine", ROUTINES)
def test_tiny_matrices_are_left_unless_many_are_worked_on_at_once(routine: str, size: int) -> None:
    assert [kernel for kernel in kernels(routine, size) if not kernel.startswith("blocked.")] == []


@needs_avx512
@pytest.mark.parametrize("routine", ["cholesky", "lu", "triangular_solve"])
def test_many_are_worked_on_in_lanes_of_vectors(routine: str) -> None:
    assert kernels(routine, 3) == [f"blocked.{routine}"]


@pytest.mark.skipif(isinstance(vendor.library("onemkl.eigh"), Unavailable), reason="oneMKL is not installed")
def test_larger_ones_are_not() -> None:
    assert kernels("eigh", 16) == ["onemkl.eigh"]
