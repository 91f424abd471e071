"""Size of XLA's thread pool: the planned number of threads is the pool's, and oneDNN uses no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from environment import clean_environment

pytestmark = [pytest.mark.any_processor, pytest.mark.any_python]

PROGRAM = """
import json, os
import jax, jax.numpy as jnp, hlo_dispatch
from pathlib import Path
from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.vendor import libraries

def ticks():
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name, _, rest = (task / "stat").read_text().split("(", 1)[1].rpartition(")")
        except OSError:
            continue  # it has just ended
        fields = rest.split()
        found.setdefault(name, []).append(int(fields[11]) + int(fields[12]))
    return found

a = jnp.ones((768, 768)) / 768
with hlo_dispatch.enabled(policy="always"):
    product = jax.jit(lambda a: jnp.tanh(a @ a)).lower(a).compile()
is_dispatched = "hlo_dispatch.onednn.matmul" in product.as_text() and libraries.onednn().runtime == "tbb"
product(a).block_until_ready()
before = ticks()
for _ in range(60):
    product(a).block_until_ready()
after = ticks()
print(json.dumps({
    "said": this_machine().threads, "pool": len(after["tf_XLAEigen"]), "is_dispatched": is_dispatched,
    "onednn": sum(after.get("onednn", [])) - sum(before.get("onednn", [])),
}))
"""


@pytest.mark.parametrize(
    "variables", [{}, {"NPROC": "1"}, {"NPROC": "3"}, {"NPROC": "1 ", "PJRT_NPROC": "many"}, {"PJRT_NPROC": "0"}],
    ids=str,
)  # fmt: skip
def test_threads(variables: dict[str, str]) -> None:
    environment = {name: value for name, value in clean_environment().items() if "NPROC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment | variables,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["said"] == found["pool"]
    if not variables:
        assert found["pool"] == len(os.sched_getaffinity(0))
    if found["is_dispatched"]:
        assert found["onednn"] <= 2, "oneTBB's own threads took part: hundredths of a second"
