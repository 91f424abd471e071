"""Fixtures of measurement tests: a separate store, results that do not depend on a busy machine, a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import FILTER, IMAGE, W, X, depthwise

import hlo_dispatch
from hlo_dispatch.autotune.compare.timing import Time
from hlo_dispatch.autotune.store import Store


@pytest.fixture
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty store, and time to measure."""
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    yield
    hlo_dispatch.uninstall()


@pytest.fixture
def _any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, somebody is found to be faster."""
    monkeypatch.setattr(Time, "may_win", lambda *_: False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="module")
def module_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module with four different regions."""
    from hlo_dispatch.jax_plugin.explaining import optimized

    def network(x, w, v, image, window):
        return jnp.tanh(x @ w) @ v, depthwise(image, window), depthwise(image[:, :20], window)

    v = np.ones((128, 96), "float32")
    file = tmp_path_factory.mktemp("module") / "network.pb"
    file.write_bytes(optimized(network, X, W, v, IMAGE, FILTER))
    return file
