"""Freed memory stays with the process while the pass is in JAX's compiler, unless somebody decided otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MEGABYTES = 48
PAGES = MEGABYTES << 8

# How often a block is written to for the first time since the system gave it, when it is asked for the third time.
PROGRAM = """
import ctypes, resource, sys
import hlo_dispatch
if sys.argv[1:] == ["install"]:
    hlo_dispatch.install()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
for time in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(%d << 20)
    ctypes.memset(block, time, %d << 20)
    libc.free(block)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
""" % (MEGABYTES, MEGABYTES)  # noqa: UP031


def finished(*arguments: str, program: str = PROGRAM, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES", "HLO_DISPATCH"))}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=inherited | variables)


def fresh_pages(*arguments: str, program: str = PROGRAM, **variables: str) -> int:
    done = finished(*arguments, program=program, **variables)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("variables", [{}, {"HLO_DISPATCH_KEEP_MEMORY": "1"}], ids=["unset", "wished"])
def test_kept(variables: dict[str, str]) -> None:
    assert fresh_pages("install", **variables) < PAGES // 100


def test_kept_when_installed_by_the_environment() -> None:
    program = PROGRAM.replace("import hlo_dispatch", "import jax; jax.devices()")
    assert fresh_pages(program=program, HLO_DISPATCH="1") < PAGES // 100


@pytest.mark.parametrize(
    "variables",
    [{"HLO_DISPATCH_KEEP_MEMORY": "0"}, {"MALLOC_TRIM_THRESHOLD_": "1000000", "MALLOC_MMAP_THRESHOLD_": "1000000"}],
    ids=["unwanted", "decided"],
)
def test_left_alone(variables: dict[str, str]) -> None:
    # With large pages for everything the system would be asked less often; nobody has them by default.
    assert fresh_pages("install", **variables) > PAGES * 9 // 10


def test_an_import_changes_nothing() -> None:
    assert fresh_pages() > PAGES * 9 // 10


def test_a_wrong_value_is_said() -> None:
    done = finished("install", HLO_DISPATCH_KEEP_MEMORY="yes")
    assert done.returncode != 0
    assert "PolicyError: HLO_DISPATCH_KEEP_MEMORY is 'yes'; set it to 0" in done.stderr
