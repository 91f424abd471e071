"""Engine creation leaves the process unchanged, and fails as a refusal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from interposed import OVER_SYCL, child, interposed, is_sycl_build

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries

ENVIRONMENT = """
import os, subprocess, sys
before = dict(os.environ)
inherited = lambda: subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.split(b"\\0")
first = sorted(inherited())
from hlo_dispatch.vendor import kernels, libraries
kernels.warm_up()
assert libraries.mkl() and libraries.onednn()
assert dict(os.environ) == before
last = sorted(inherited())
assert last == first, set(last) ^ set(first)
"""


@pytest.mark.onemkl
@pytest.mark.parametrize("environment", [{}, OVER_SYCL])
def test_children_inherit_nothing_of_ours(environment: dict[str, str]) -> None:
    if environment and not is_sycl_build():
        pytest.skip("there is no oneDNN over SYCL here")
    done = child(ENVIRONMENT, **environment)
    assert done.returncode == 0, done.stderr


ASK = """
from hlo_dispatch.vendor import kernels
square = {"dims": [2, 2], "strides": [2, 1], "type": "f32"}
spec = {f"{role}_{key}": value for role in ("src", "weights", "dst") for key, value in square.items()}
for _ in range(2):
    print(kernels.plan("onednn.matmul", {"abi": 1, **spec}))
    kernels._plans.clear()
"""

THROWING = """
#include <stdexcept>
extern "C" int dnnl_engine_create(void**, int, unsigned long) { throw %s; }
"""


@pytest.mark.parametrize(
    ("thrown", "said"), [('std::runtime_error("no device today")', "no device today"), ("7", "no exception")]
)
def test_what_the_engine_throws_is_a_refusal(tmp_path: Path, thrown: str, said: str) -> None:
    library = interposed(tmp_path, THROWING % thrown)
    done = child(ASK, HLO_DISPATCH_ONEDNN_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert line.startswith("library-missing: oneDNN ")
        assert f"has no CPU engine: {said}" in line or f"is {said}" in line


PINNED = """
import os, threading
everything = os.sched_getaffinity(0)
def work():
    os.sched_setaffinity(0, {min(everything)})
    from hlo_dispatch.vendor import thread_binding, kernels
    from hlo_dispatch.process.machine import this_machine
    kernels.warm_up()
    print(this_machine().threads, int(thread_binding.binds_threads()))
thread = threading.Thread(target=work)
thread.start()
thread.join()
seen = set()
for thread in os.listdir("/proc/self/task"):
    try:
        if open(f"/proc/self/task/{thread}/comm").read().strip() == "onednn":
            seen |= os.sched_getaffinity(int(thread))
    except (FileNotFoundError, ProcessLookupError):
        pass  # the thread that was joined may still be listed for a moment
print(sorted(seen) == sorted(everything))
"""


@pytest.mark.parametrize("runtime", ["sycl", "tbb"])
def test_the_thread_that_came_first_may_have_fewer_processors(runtime: str) -> None:
    found = libraries.onednn()
    if isinstance(found, Unavailable) or (runtime != found.runtime and not is_sycl_build()):
        pytest.skip(f"there is no oneDNN over {runtime} here")
    processors = len(os.sched_getaffinity(0))
    if processors < 2:
        pytest.skip("there is one processor")
    bound = int(processors == 2)
    done = child(PINNED, HLO_DISPATCH_ONEDNN_RUNTIME=runtime)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(processors), str(bound), "True"]
