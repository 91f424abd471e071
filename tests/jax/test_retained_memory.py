"""malloc's settings: freed memory is retained only where the user asked for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from environment import clean_environment
from warm import run_python

MEGABYTES = 48
PAGES = MEGABYTES << 8

# How often a block is written to for the first time since the system gave it, when it is asked for the third time.
PROGRAM = """
import ctypes, resource, sys
import hlo_dispatch
if "install" in sys.argv:
    hlo_dispatch.install(policy="never" if "never" in sys.argv else "heuristic")
if "uninstall" in sys.argv:
    hlo_dispatch.uninstall()
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
    usual = clean_environment().items()
    inherited = {k: v for k, v in usual if not k.startswith(("MALLOC_", "GLIBC_TUNABLES", "HLO_DISPATCH"))}
    return run_python(program, *arguments, environment=inherited | variables)


def counted(*arguments: str, program: str = PROGRAM, **variables: str) -> int:
    done = finished(*arguments, program=program, **variables)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_kept_if_wished() -> None:
    assert counted("install", HLO_DISPATCH_KEEP_MEMORY="1") < PAGES // 100


def test_kept_when_installed_by_the_environment() -> None:
    program = PROGRAM.replace("import hlo_dispatch", "import jax; jax.devices()")
    variables = {"HLO_DISPATCH": "1", "HLO_DISPATCH_KEEP_MEMORY": "1"}
    assert counted(program=program, **variables) < PAGES // 100


# With large pages for everything the system would be asked less often; nobody has them by default.
@pytest.mark.parametrize("variables", [{}, {"HLO_DISPATCH_KEEP_MEMORY": "0"}], ids=["unset", "unwanted"])
def test_left_alone(variables: dict[str, str]) -> None:
    assert counted("install", **variables) > PAGES * 9 // 10


@pytest.mark.parametrize("arguments", [(), ("install", "never"), ("install", "uninstall")], ids=" ".join)
def test_not_without_the_pass(arguments: tuple[str, ...]) -> None:
    assert counted(*arguments, HLO_DISPATCH_KEEP_MEMORY="1") > PAGES * 9 // 10


def test_a_wrong_value_is_said() -> None:
    done = finished("install", HLO_DISPATCH_KEEP_MEMORY="perhaps")
    assert done.returncode != 0
    assert "PolicyError: HLO_DISPATCH_KEEP_MEMORY is 'perhaps'; set it to 0" in done.stderr


def test_a_c_library_that_refuses_is_said(tmp_path: Path) -> None:
    """Older ones do: malloc's own limit is 32 MB there."""
    compiler = shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    library = tmp_path / "refusing.so"
    source = 'extern "C" int mallopt(int, int) { return 0; }'
    subprocess.run([compiler, "-x", "c++", "-shared", "-fPIC", "-o", library, "-"], input=source, text=True, check=True)
    done = finished("install", HLO_DISPATCH_KEEP_MEMORY="1", LD_PRELOAD=str(library))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > PAGES * 9 // 10
    assert done.stderr.count("HLO_DISPATCH_KEEP_MEMORY=1 has no effect: this C library (") == 1


ARRAYS = """
import gc, sys
import jax, jax.numpy as jnp
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
ones = jnp.ones(12 << 20).block_until_ready()
if "install" in sys.argv:
    import hlo_dispatch
    hlo_dispatch.install(policy="heuristic")
if "uninstall" in sys.argv:
    hlo_dispatch.uninstall()
before = resident()
arrays = [jax.block_until_ready(ones * number) for number in range(20)]
assert resident() - before > 900 << 20
del arrays
gc.collect()
print(resident() - before)
"""


def test_dropped_arrays_are_given_back() -> None:
    """Twenty of 48 MB each, as in stock; and after the pass was there and kept them, too."""
    stock = counted(program=ARRAYS)
    for arguments, wished in [(["install"], ""), (["install", "uninstall"], "1")]:
        left = counted(*arguments, program=ARRAYS, HLO_DISPATCH_KEEP_MEMORY=wished)
        assert left < stock + (100 << 20), f"{arguments} leaves {left >> 20} MB, stock {stock >> 20}"
