"""Thread affinity: oneDNN's threads are bound to processors where that was measured to be better, or is requested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from interposed import OVER_SYCL, is_sycl_build

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries

pytestmark = [pytest.mark.any_processor, pytest.mark.any_python]

PROCESSORS = sorted(os.sched_getaffinity(0))

PROGRAM = """
import os, sys
os.sched_setaffinity(0, [int(number) for number in sys.argv[1].split(",")])
import jax, numpy as np
import hlo_dispatch

def threads():
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            if open(f"/proc/self/task/{thread}/comm").read().strip() == "onednn":
                found.append(",".join(map(str, sorted(os.sched_getaffinity(int(thread))))))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended
    return " ".join(sorted(found))

random = np.random.default_rng(0)
a = random.standard_normal((300, 255)).astype(np.float32)
b = random.standard_normal((255, 301)).astype(np.float32)
with hlo_dispatch.enabled(policy="always"):
    product = jax.jit(lambda a, b: jax.nn.relu(a @ b)).lower(a, b).compile()
assert "hlo_dispatch.onednn.matmul" in product.as_text()
difference = np.asarray(product(a, b)) - np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
assert np.abs(difference).max() < 1e-3
print(threads())
"""


def seen(directory: Path, processors: list[int], **variables: str) -> str:
    environment = os.environ | {"HLO_DISPATCH_CACHE_DIR": str(directory)} | variables
    command = [sys.executable, "-c", PROGRAM, ",".join(map(str, processors))]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="there is one processor")
@pytest.mark.parametrize("wanted", ["", "1"])
def test_two_processors(tmp_path: Path, wanted: str) -> None:
    if not is_sycl_build():
        pytest.skip("only a SYCL runtime has threads of its own")
    first, second = PROCESSORS[:2]
    assert seen(tmp_path, [first, second], HLO_DISPATCH_BIND_THREADS=wanted, **OVER_SYCL) == f"{first} {second}"


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="there is one processor")
def test_not_if_unwanted(tmp_path: Path) -> None:
    if not is_sycl_build():
        pytest.skip("only a SYCL runtime has threads of its own")
    first, second = PROCESSORS[:2]
    # TBB's worker, bound by Intel's OpenCL runtime; SYCL's own thread is not made by ours and has another name.
    assert len(seen(tmp_path, [first, second], HLO_DISPATCH_BIND_THREADS="0", **OVER_SYCL).split()) <= 1


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="there is one processor")
def test_tbb_workers_are_placed_by_the_system(tmp_path: Path) -> None:
    """They share their processors with whoever calls."""
    found = libraries.onednn()
    if isinstance(found, Unavailable) or found.runtime != "tbb":
        pytest.skip("oneDNN does not run over TBB here")
    first, second = PROCESSORS[:2]
    threads = seen(tmp_path, [first, second], HLO_DISPATCH_BIND_THREADS="1").split()
    assert threads == [f"{first},{second}"] * 2, "one is the thread that keeps the worker"


def test_one_processor_has_nothing_to_share(tmp_path: Path) -> None:
    only = PROCESSORS[0]
    assert set(seen(tmp_path, [only], HLO_DISPATCH_BIND_THREADS="1").split()) <= {str(only)}


def test_another_value_is_said_to_be_wrong() -> None:
    code = "from hlo_dispatch.vendor import libraries; print(libraries.onednn().sentence)"
    environment = os.environ | {"HLO_DISPATCH_BIND_THREADS": "perhaps"}
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "HLO_DISPATCH_BIND_THREADS is 'perhaps'" in finished.stdout
    assert "unset it" in finished.stdout
