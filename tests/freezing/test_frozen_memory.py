"""Memory of weight preprocessing: the weights once more, and little besides."""

from __future__ import annotations

import json
import statistics
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch.freezing import preprocessing
from warm import run_python

PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, hlo_dispatch
from hlo_dispatch.bench.models.process import status
hlo_dispatch.install(policy="always")
LAYERS, WIDTH = 24, 1024
weights = [
    {"w": jnp.full((WIDTH, WIDTH), 1e-3 * layer), "scale": jnp.linspace(0.5, 1, WIDTH)} for layer in range(LAYERS)
]
def network(weights, x):
    for layer in weights:
        # Scaled in a function that is frozen once: what lies between is as large as the weights.
        x = jnp.tanh(x @ jnp.cumsum(layer["w"] * layer["scale"], axis=0))
    return x
x = jnp.ones((8, WIDTH))
run = hlo_dispatch.freeze(network, weights) if sys.argv[1] == "frozen" else lambda x: jax.jit(network)(weights, x)
before = status("VmRSS")
for _ in range(3):
    jax.block_until_ready(run(x))
answer = {"before": before, "peak": status("VmHWM"), "weights": LAYERS * WIDTH * WIDTH * 4}
if sys.argv[1] == "frozen":
    answer["held"] = run.nbytes
    updates = []
    for _ in range(10):
        run.update(weights)
        jax.block_until_ready(run(x))
        updates.append(status("VmRSS"))
    answer["updates"] = updates
print(json.dumps(answer))
"""


def measured(way: str) -> dict[str, Any]:
    done = run_python(PROGRAM, way, environment=clean_environment(HLO_DISPATCH_STRICT="1"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_preprocessing_takes_the_weights_once_more() -> None:
    frozen, unfrozen = measured("frozen"), measured("unfrozen")
    assert frozen["held"] < 1.1 * frozen["weights"]
    assert frozen["peak"] - unfrozen["peak"] < 1.25 * frozen["weights"]
    # Two sets of prepared weights exist during an update, one soon after it.
    assert statistics.median(frozen["updates"]) - frozen["peak"] < 0.25 * frozen["weights"]


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocessing, "MEMORY_OPTIMIZED", {"xla_cpu_as_it_was_called_once": "YES"})
    weights = np.linspace(-1, 1, 64 * 33, dtype=np.float32).reshape(64, 33)
    fast = hlo_dispatch.freeze(lambda w, x: x @ jnp.exp(w).T, weights)
    x = np.ones((3, 33), np.float32)
    np.testing.assert_allclose(fast(x), x @ np.exp(weights).T, rtol=1e-5)
    assert fast.report.programs[0].prepared
