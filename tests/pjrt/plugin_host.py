"""The PJRT plugin's hosts: processes of their own, since a process has one plugin and one runtime."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from environment import clean_environment
from hlo_dispatch import kernels
from hlo_dispatch.ir.text import from_text

HOST = Path(__file__).with_name("host_worker.py")
RUNTIMES = {"fastatomstruct_xla_cpu": "libpjrt_cpu.so", "lammps_jax_pjrt_cpu": "pjrt_c_api_cpu_plugin.so"}
PRODUCT = """
HloModule product

ENTRY main {
  x = f32[64,48] parameter(0)
  w = f32[48,80] parameter(1)
  product = f32[64,80] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  zeros = f32[64,80] broadcast(zero), dimensions={}
  ROOT relu = f32[64,80] maximum(product, zeros)
}
"""


def runtime_path(package: str) -> Path:
    """A runtime's file; skips the test where the package is missing."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"there is no {package}, an XLA:CPU behind PJRT (pyproject.toml, `host`)")
    return Path(found.submodule_search_locations[0]) / RUNTIMES[package]


@dataclass(frozen=True)
class Ran:
    """What a host printed."""

    results: dict[str, Any]
    errors: str

    def __getitem__(self, name: str) -> Any:
        return self.results[name]


@dataclass(frozen=True)
class Host:
    """Runs the product of the module above in a process of its own that knows no JAX."""

    folder: Path
    runtime: Path | str

    def environment(self, **more: str) -> dict[str, str]:
        named = {"HLO_DISPATCH_PJRT_RUNTIME": str(self.runtime), "HLO_DISPATCH_PYTHON": sys.executable}
        return clean_environment(**({"HLO_DISPATCH_POLICY": "always"} | named | more))

    def run(self, *options: str, timeout: float = 120, module: bytes = b"", **environment: str) -> Ran:
        """Run it, or another module that computes the same; the results are compared with NumPy's."""
        random = np.random.default_rng(0)
        x, w = random.standard_normal((64, 48), np.float32), random.standard_normal((48, 80), np.float32)
        np.savez(self.folder / "operands.npz", x=x, w=w)
        (self.folder / "module.pb").write_bytes(module or from_text(PRODUCT))
        command = [sys.executable, HOST, kernels.plugin_path(), self.folder, *options]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.environment(**environment), timeout=timeout
        )
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout.splitlines()[-1])
        for path in sorted(self.folder.glob("result*.npy")):
            got = np.load(path)
            np.testing.assert_allclose(got.reshape(64, 80), np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
            path.unlink()
            printed["compared"] = printed.get("compared", 0) + 1
        return Ran(printed, done.stderr)


def fake_python(folder: Path, body: str, flags: str = " -S") -> str:
    """A program in place of the interpreter, in Python without our package."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}{flags}\n{body}\n")
    path.chmod(0o755)
    return os.fspath(path)
