"""Flax Stable Diffusion with the plugin as JAX's backend, on two of its devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plugin_host import Host

from hlo_dispatch import kernels

for needed in ("flax", "transformers", "diffusers"):
    pytest.importorskip(needed)
pytestmark = [pytest.mark.any_processor, pytest.mark.any_python]
WORKER = Path(__file__).with_name("diffusion_worker.py")


def test_an_image_from_each_device(tmp_path: Path, any_runtime: Path) -> None:
    """`replicate` and `device_count` as diffusers' page has them; the program of two replicas is dispatched."""
    environment = Host(tmp_path, any_runtime).environment(
        PJRT_NAMES_AND_LIBRARY_PATHS=f"hd:{kernels.plugin_path()}",
        PYTHONPATH=str(WORKER.parents[1]),
        # LLVM has nothing to do with what is tested.
        XLA_FLAGS="--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=2",
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", WORKER, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"JAX_PLATFORMS": "hd,cpu"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["failure"] == ""
    assert printed["dispatched"] >= 1
    with np.load(tmp_path / "images.npz") as images:
        got, expected = images["got"], images["expected"]
    assert got.shape == expected.shape == (2, 1, 32, 32, 3)
    assert np.abs(got[0] - got[1]).max() > 0.05, "each device has words and noise of its own"
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-3)
