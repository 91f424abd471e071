"""Kernel tests run real oneDNN through JAX's FFI; the targets are registered once for all of them."""

from __future__ import annotations

import jax
import pytest

from hlo_dispatch.vendor import kernels
from processor import skip_without


@pytest.fixture(scope="session", autouse=True)
def registered() -> None:
    jax.devices("cpu")  # XLA hands out type ids only once a client exists
    found = kernels.registrations()
    for name, capsules in found.types.items():
        jax.ffi.register_ffi_type(name, capsules, platform="cpu")
    for name, stages in found.targets.items():
        jax.ffi.register_ffi_target(name, stages, platform="cpu")


@pytest.fixture(autouse=True)
def _arithmetic(request: pytest.FixtureRequest) -> None:
    """A test of an element type is for processors on which the library computes in it."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("dtype") == "bf16":
        skip_without("bf16")
