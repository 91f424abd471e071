"""JAX with the plugin as its backend, beside jaxlib's own CPU client in the same process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from plugin_host import Host

from hlo_dispatch import kernels
from hlo_dispatch.pattern import shipped_tables
from hlo_dispatch.vendor import libraries

pytestmark = pytest.mark.any_processor
WORKER = Path(__file__).with_name("jax_worker.py")
DISPATCHED = ("convolution", "dense layers", "attention", "scan", "while", "cond", "gradient", "vmap", "cholesky",
              "fft", "triangular solve", "qr", "eigenvalues", "singular values", "user's kernel",
              "two devices")  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, any_runtime: Path) -> tuple[dict[str, Any], Any, Any]:
    folder = tmp_path_factory.mktemp("jax")
    source, library = WORKER.with_name("users_kernel.cc"), folder / "libscaled_silu.so"
    command = ["g++", "-shared", "-fPIC", f"-I{jax.ffi.include_dir()}", source, "-o", library]
    subprocess.run(command, check=True)
    table = shutil.copy(shipped_tables()[0].parent / "examples" / "mine.yaml", folder)
    # Programs that are not dispatched call it, too; beside a plugin that is installed it is found.
    path = getattr(libraries.mkl(), "path", None)
    onemkl = {} if path is None else {"HLO_DISPATCH_MKL_LIBRARY": str(path)}
    environment = Host(folder, any_runtime).environment(
        **onemkl,
        PJRT_NAMES_AND_LIBRARY_PATHS=f"hd:{kernels.plugin_path()}",
        HLO_DISPATCH_TABLES=str(table),
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    done = subprocess.run(
        [sys.executable, WORKER, folder],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"JAX_PLATFORMS": "hd,cpu"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), np.load(folder / "1.npz"), np.load(folder / "0.npz")


def test_results_are_jaxlibs(ran: tuple[dict[str, Any], Any, Any]) -> None:
    _, got, expected = ran
    assert sorted(got) == sorted(expected)
    for name in expected:
        scale = np.abs(expected[name]).max(initial=0) or 1
        assert np.isfinite(got[name]).all(), name
        error = 1e-12 if "float64" in name or "complex128" in name else 2e-5
        np.testing.assert_allclose(got[name], expected[name], rtol=0, atol=error * scale, err_msg=name)


def test_what_the_table_has_is_dispatched(ran: tuple[dict[str, Any], Any, Any]) -> None:
    printed, _, _ = ran
    assert [name for name in DISPATCHED if not printed["dispatched"][name]] == [], printed["failure"]
    assert printed["dispatched"]["donated"] == 1
