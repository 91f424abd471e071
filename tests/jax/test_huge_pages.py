"""A dispatched program's large buffers come in huge pages: few page faults, the same results, nothing kept."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from environment import clean_environment
from hlo_dispatch.passes.huge_page_advice import NAME
from hlo_dispatch.process.large_pages import FOLDER
from warm import run_python

# 16 values of 8 MB that are kept for the end, as activations are for a gradient, and a result of 32 MB.
PROGRAM = """
import ctypes, json, resource, sys, time
import jax, jax.numpy as jnp, numpy as np
import hlo_dispatch
from hlo_dispatch.passes import huge_page_advice
if "no huge pages" in sys.argv:
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE

def program(x, w):
    kept = []
    for _ in range(16):
        x = jnp.tanh(x @ w)
        kept.append(x)
    total = sum(jnp.sum(value[::-1] * x) for value in kept)
    return total, jnp.concatenate([x] * 4)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

random = np.random.default_rng(0)
x = jnp.asarray(random.standard_normal((8192, 256)), jnp.float32)
w = jnp.asarray(random.standard_normal((256, 256)) / 16, jnp.float32)
found = {}
least = huge_page_advice.LEAST_BYTES
for name, policy in (("stock", "never"), ("unadvised", "always"), ("advised", "always")):
    huge_page_advice.LEAST_BYTES = least if name == "advised" else 1 << 60
    with hlo_dispatch.enabled(policy=policy):
        compiled = jax.jit(lambda *given: program(*given)).lower(x, w).compile()
    total = float(compiled(x, w)[0])
    time.sleep(0.3)  # what XLA's threads hold of the run before
    before, held = faults(), resident()
    for _ in range(3):
        jax.block_until_ready(compiled(x, w))
    counted = (faults() - before) / 3
    time.sleep(0.3)
    found[name] = dict(
        faults=counted, kept=resident() - held, total=total,
        temporary=compiled.memory_analysis().temp_size_in_bytes, calls=compiled.as_text().count("hlo_dispatch."),
    )
print(json.dumps(found))
"""


def measured(*arguments: str) -> dict[str, dict[str, float]]:
    usual = clean_environment().items()
    inherited = {k: v for k, v in usual if not k.startswith(("MALLOC_", "GLIBC_TUNABLES", "HLO_DISPATCH"))}
    done = run_python(PROGRAM, *arguments, environment=inherited)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    stock, unadvised, advised = (found[name] for name in ("stock", "unadvised", "advised"))
    assert (stock["calls"], advised["calls"]) == (0, unadvised["calls"] + 1)
    assert advised["total"] == unadvised["total"]
    # What a run allocated is given back behind it, and XLA allocates no more than before.
    assert advised["kept"] < max(stock["kept"], unadvised["kept"], 0) + (16 << 20)
    assert advised["temporary"] < unadvised["temporary"] + 4096
    return found


def test_faults_become_few() -> None:
    if not FOLDER.is_dir() or "[never]" in (FOLDER / "enabled").read_text():
        pytest.skip("this machine gives no huge pages")
    found = measured()
    if found["unadvised"]["faults"] < 10_000:
        pytest.skip("everybody has huge pages here, or an allocator that keeps what is freed")
    assert found["advised"]["faults"] * 10 < found["unadvised"]["faults"]


def test_without_huge_pages_it_is_as_it_was() -> None:
    found = measured("no huge pages")
    assert found["advised"]["faults"] < 1.1 * found["unadvised"]["faults"] + 1000


def text(side: int) -> str:
    random = np.random.default_rng(0)
    x, w = (jnp.asarray(random.standard_normal((side, side)), jnp.float32) for _ in range(2))
    with hlo_dispatch.enabled(policy="always"):
        return jax.jit(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w)).lower(x, w).compile().as_text()


def test_small_programs_are_left_alone() -> None:
    assert f"%{NAME}" not in text(512)
    assert f"%{NAME}" in text(2560)


def test_both_sides_speak_of_the_same_size() -> None:
    header = Path(__file__).parents[2] / "kernels" / "common" / "huge_pages.h"
    assert "kMinAdvised = int64_t{16} << 20" in header.read_text()
