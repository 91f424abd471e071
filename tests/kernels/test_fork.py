"""Abandoned threads: a child forked from a process that has used oneDNN plans calls, cannot execute, never hangs."""

from __future__ import annotations

import pytest
from interposed import OVER_SYCL, child, is_sycl_build

pytestmark = pytest.mark.any_processor

PREPARED = """
import os, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads about is what this is
from hlo_dispatch import _kernels
from hlo_dispatch.vendor import kernels, libraries, registry

def spec(rows):
    asked = {"abi": registry.abi(), "library": libraries.onednn().version, "scratch": 1 << 20}
    for role, (height, width) in {"src": (rows, 37), "weights": (37, 41), "dst": (rows, 41)}.items():
        asked |= {f"{role}_type": "f32", f"{role}_dims": [height, width], f"{role}_strides": [width, 1]}
    return asked

def in_child(work, end=os._exit):
    '''Fails unless `work` returns in a forked child, which then ends.'''
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        end(0)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            if status != 0:
                sys.exit(f"the child ended with {status}")
            return
        time.sleep(0.01)
    os.kill(process, 9)
    os.waitpid(process, 0)
    sys.exit("the child hangs")

TARGET = registry.kernels()["onednn.matmul"].target
kernels.warm_up()
raw = _kernels.raw_call(TARGET, spec(300), [])
_kernels.run_raw(raw, 2)
"""

EXECUTING = """
def execute():
    try:
        _kernels.run_raw(raw, 1)
    except ImportError as error:
        assert "its threads stayed in the one from which this was forked" in str(error), error
        assert "'spawn'" in str(error), error
    else:
        sys.exit("it has threads")
in_child(execute)
_kernels.run_raw(raw, 2)
"""

PLANNING = """
def plan():
    assert kernels.plan("onednn.matmul", spec(77))
    kernels.prefetch("onednn.matmul", spec(78))
    assert kernels.plan("onednn.matmul", spec(78))
    assert _kernels.raw_call(TARGET, spec(79), [])
in_child(plan)
"""

# The process is forked again and again, with questions open and one being worked on, which takes some milliseconds.
ASKING = """
from hlo_dispatch.cli.sample_calls import IMAGES, call
def question(size):
    sample = call(IMAGES, "f32", libraries.onednn().version)
    strides = [64 * size * size, 1, 64 * size, 64]
    return sample | {f"{role}_{key}": value for role in ("src", "dst")
                     for key, value in (("dims", [1, 64, size, size]), ("strides", strides))}
for turn in range(8):
    sizes = range(20 + 10 * turn, 30 + 10 * turn)
    for size in sizes:
        kernels.prefetch("onednn.convolution", question(size))
    def plan():
        for size in sizes:
            assert kernels.plan("onednn.convolution", question(size))
    in_child(plan)
    plan()
"""

ENDING = """
in_child(lambda: print("said"), end=sys.exit)
def ask():
    kernels.prefetch("onednn.matmul", spec(80))
in_child(ask, end=sys.exit)
"""


@pytest.mark.parametrize(
    "work", [EXECUTING, PLANNING, ASKING, ENDING], ids=["executing", "planning", "asking", "ending"]
)
@pytest.mark.parametrize("environment", [{}, OVER_SYCL], ids=["default", "sycl"])
def test_a_forked_child(work: str, environment: dict[str, str]) -> None:
    if not is_sycl_build():
        pytest.skip("what other runtimes do after a fork is theirs")
    done = child(PREPARED + work, seconds=280, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("", "said\n")


@pytest.mark.onemkl
def test_a_child_of_a_process_that_has_only_loaded_it() -> None:
    """The engine is created in the child then, and has its threads there."""
    prepared, _, _ = PREPARED.partition("kernels.warm_up()")
    work = """
assert libraries.onednn() and libraries.mkl()
def execute():
    raw = _kernels.raw_call(TARGET, spec(300), [])
    _kernels.run_raw(raw, 2)
in_child(execute)
execute()
"""
    done = child(prepared + work)
    assert done.returncode == 0, done.stderr
