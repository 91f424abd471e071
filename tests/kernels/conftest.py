"""Kernel tests run real oneDNN through JAX's FFI; the targets are registered once for all of them."""

from __future__ import annotations

import jax
import pytest

from hlo_dispatch import kernels


@pytest.fixture(scope="session", autouse=True)
def registered() -> None:
    jax.devices("cpu")  # XLA hands out type ids only once a client exists
    found = kernels.registrations()
    for name, capsules in found.types.items():
        jax.ffi.register_ffi_type(name, capsules, platform="cpu")
    for name, stages in found.targets.items():
        jax.ffi.register_ffi_target(name, stages, platform="cpu")
