"""Measurements beside real busy loops: a kernel that is much faster on a quiet machine does not lose for good."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest
from measured_programs import FILTER, IMAGE, calls, compiled, depthwise, forget, regions_in

from hlo_dispatch.autotune.compare.disturbance import this_machine_meter
from hlo_dispatch.autotune.store import Store
from hlo_dispatch.selection.measurements import STOCK
from processor import needs_avx512

pytestmark = [pytest.mark.timing, pytest.mark.usefixtures("_own_store")]


@pytest.fixture
def _busy_loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("hlo_dispatch.autotune.compare.timing.this_machine_meter", this_machine_meter)
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("_busy_loops")
def test_no_large_win_is_refused_for_good(store: Store) -> None:
    # XLA's depthwise convolutions are several times slower than oneDNN's, on any machine.
    for _ in range(3):
        forget(store)
        assert calls(compiled(depthwise, IMAGE, FILTER)) == 1
        for entry in regions_in(store):
            measured = entry.measured
            assert measured.provisional or measured.failed_attempts or measured.chosen != STOCK, measured.sentence()


@needs_avx512
@pytest.mark.any_processor
@pytest.mark.usefixtures("_busy_loops")
def test_a_large_win_that_the_cost_model_refuses_is_dispatched(store: Store) -> None:
    # A blocked Cholesky of 3x3 matrices takes a seventh of LAPACK's time on a quiet machine.
    half = np.random.default_rng(0).standard_normal((20_000, 3, 3), "float32")
    matrices = half @ half.swapaxes(1, 2) + 3 * np.eye(3, dtype="float32")
    for _ in range(3):
        forget(store)
        assert calls(compiled(jnp.linalg.cholesky, matrices)) == 1
