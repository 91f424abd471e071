"""Programs on a machine without oneMKL: the same results, by whatever else there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from environment import clean_environment
from warm import run_python

PROGRAM = """
import jax, jax.numpy as jnp, jax.scipy.linalg as jsl, numpy as np
import hlo_dispatch
jax.config.update("jax_enable_x64", True)
random = np.random.default_rng(0)
a = random.standard_normal((40, 40)) + 40 * np.eye(40)
def program(a):
    positive = a @ a.T
    return (
        jnp.linalg.cholesky(positive), jsl.cho_solve(jsl.cho_factor(positive, lower=True), a), jnp.linalg.solve(a, a),
        jnp.linalg.slogdet(a)[1], jnp.linalg.eigvalsh(positive), jnp.linalg.svd(a)[1], jnp.fft.fft2(a),
        (a + 1j * a.T) @ a,
    )
stock = jax.jit(program)(a)
with hlo_dispatch.enabled(policy=POLICY):
    compiled = jax.jit(lambda a: program(a)).lower(a).compile()
assert "hlo_dispatch.onemkl" not in compiled.as_text()
assert POLICY != "always" or "hlo_dispatch.scipy" in compiled.as_text()
for wanted, got in zip(stock, compiled(a), strict=True):
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
assert hlo_dispatch.statistics().failures == 0
print("equal")
"""


@pytest.mark.parametrize("policy", ["always", "measure", "heuristic"])
def test_programs_run_as_before(tmp_path: Path, policy: str) -> None:
    environment = clean_environment() | {
        "HLO_DISPATCH_MKL_LIBRARY": str(tmp_path / "nowhere.so"), "HLO_DISPATCH_CACHE_DIR": str(tmp_path),
    }  # fmt: skip
    done = run_python(PROGRAM.replace("POLICY", repr(policy)), environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "equal"
