"""Kernel tests run real oneDNN through JAX's FFI; the targets are registered once for all of them."""

from __future__ import annotations

import jax
import pytest

from hlo_dispatch.vendor import kernels
from processor import lacks_onemkl, skip_without


@pytest.fixture(scope="session", autouse=True)
def registered() -> None:
    jax.devices("cpu")  # XLA hands out type ids only once a client exists
    found = kernels.registrations()
    for name, capsules in found.types.items():
        jax.ffi.register_ffi_type(name, capsules, platform="cpu")
    for name, stages in found.targets.items():
        jax.ffi.register_ffi_target(name, stages, platform="cpu")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of oneMKL's, by its mark or by the name of the kernel it is given, is for machines that have it."""
    callspec = getattr(item, "callspec", None)
    names = callspec.params.values() if callspec is not None else ()
    is_onemkls = any(isinstance(name, str) and name.partition(".")[0].lower() == "onemkl" for name in names)
    if (is_onemkls or item.get_closest_marker("onemkl") is not None) and lacks_onemkl():
        pytest.skip(lacks_onemkl())


@pytest.fixture(autouse=True)
def _arithmetic(request: pytest.FixtureRequest) -> None:
    """A test of an element type is for processors on which the library computes in it."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("dtype") == "bf16":
        skip_without("bf16")
