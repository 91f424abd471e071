"""Runtimes that the PJRT plugin wraps, and hosts of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin_host import Host, runtime_path


@pytest.fixture(scope="session")
def any_runtime() -> Path:
    """The first runtime."""
    return runtime_path("fastatomstruct_xla_cpu")


@pytest.fixture(scope="session")
def other_runtime() -> Path:
    """The second one, whose PJRT is newer than the plugin knows."""
    return runtime_path("lammps_jax_pjrt_cpu")


@pytest.fixture
def host(tmp_path: Path, any_runtime: Path) -> Host:
    """A host on the first runtime."""
    return Host(tmp_path, any_runtime)
