"""A host that is no Python: the example in kernels/examples/host, built against what is installed, and XLA's own table.

The plugin is XLA:CPU behind PJRT's C interface, of another version than JAX's; `pip install fastatomstruct-xla-cpu`
brings one, and HLO_DISPATCH_TEST_PJRT_PLUGIN names another.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from interposed import child, compiled

from environment import clean_environment
from hlo_dispatch import kernels, rewrite
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries

pytestmark = pytest.mark.any_processor

EXAMPLE = Path(__file__).parents[2] / "kernels" / "examples" / "host"
BLOCK = Path(__file__).with_name("resnet_block.py")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built by CMake, which is told nothing but where `hlo-dispatch` is."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake on this machine")
    folder = tmp_path_factory.mktemp("host")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for command in ([cmake, "-S", EXAMPLE, "-B", folder], [cmake, "--build", folder]):
        environment = clean_environment() | {"PATH": path}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "host"


@pytest.fixture(scope="module")
def plugin() -> Path:
    named = os.environ.get("HLO_DISPATCH_TEST_PJRT_PLUGIN")
    if named:
        return Path(named)
    package = importlib.util.find_spec("fastatomstruct_xla_cpu")
    if package is None:
        pytest.skip("there is no PJRT plugin for the CPU: pip install fastatomstruct-xla-cpu")
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0]) / "libpjrt_cpu.so"


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, its operands and JAX's result."""
    folder = tmp_path_factory.mktemp("block")
    done = subprocess.run(
        [sys.executable, BLOCK, folder],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


def run(host: Path, plugin: Path, module: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    operands = (module.parent / "operands").read_text().splitlines()
    return started([host, plugin, module, module.with_suffix(".result"), *operands], **environment)


def started(command: list[Path | str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


def onednn() -> str:
    library = libraries.onednn()
    assert not isinstance(library, Unavailable)
    return str(library.path)


def test_the_program_knows_no_python(host: Path) -> None:
    needed = subprocess.run(["ldd", host], capture_output=True, text=True, check=True).stdout
    assert str(kernels.library_path()) in needed
    assert "python" not in needed.replace(str(kernels.library_path()), "")


@pytest.fixture(scope="module")
def rewritten(host: Path, plugin: Path, block: Path) -> Path:
    """The module that the plugin's own XLA made of the program, rewritten."""
    done = started([host, plugin, "--optimize", block / "program.mlir", block / "optimized.pb"])
    assert done.returncode == 0, done.stderr
    made = rewrite((block / "optimized.pb").read_bytes(), policy="always")
    assert made.proto is not None
    assert [region.kernel for region in made.report.regions if region.kernel] == 4 * ["onednn.convolution"]
    (block / "rewritten.pb").write_bytes(made.proto)
    return block / "rewritten.pb"


def test_a_rewritten_block_has_jaxs_result(host: Path, plugin: Path, block: Path, rewritten: Path) -> None:
    done = run(host, plugin, rewritten, HLO_DISPATCH_ONEDNN_LIBRARY=onednn(), ONEDNN_VERBOSE="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("primitive,exec,cpu,convolution") == 4
    wanted = np.load(block / "result.npy")
    got = np.fromfile(rewritten.with_suffix(".result"), np.float32).reshape(wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_runs_that_are_timed(host: Path, plugin: Path, rewritten: Path) -> None:
    """By a client of one device, and no result outlives its run."""
    runs, turns = 100, 3
    operands = (rewritten.parent / "operands").read_text().splitlines()
    command = [host, plugin, "--runs", str(runs), rewritten, rewritten.with_suffix(".timed"), *operands]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env={"HLO_DISPATCH_ONEDNN_LIBRARY": onednn()}, **pipes) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        times, resident = list[list[float]](), list[int]()
        for _ in range(turns):
            process.stdin.write("\n")
            process.stdin.flush()
            times.append([float(word) for word in process.stdout.readline().split()])
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            resident.append(pages * os.sysconf("SC_PAGE_SIZE"))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "cpu_device_count" in errors
    assert all(len(turn) == 2 * runs and min(turn) > 0 for turn in times)
    assert resident[-1] - resident[0] < runs * rewritten.with_suffix(".timed").stat().st_size / 2


def test_a_library_that_is_missing_is_said(host: Path, plugin: Path, rewritten: Path) -> None:
    done = run(host, plugin, rewritten, HLO_DISPATCH_ONEDNN_LIBRARY="/nowhere.so")
    assert done.returncode == 1
    assert "this executable calls oneDNN, which is not loaded in this process" in done.stderr
    assert "HLO_DISPATCH_ONEDNN_LIBRARY names /nowhere.so, which is not a file" in done.stderr


def test_what_is_no_plugin_is_said(host: Path, block: Path) -> None:
    done = run(host, kernels.library_path(), block / "program.mlir")
    assert done.returncode == 1
    assert "is no PJRT plugin" in done.stderr


# The example's way to XLA's table, in the XLA of this very Python.
KNOCK = """
#include "xla/ffi/api/c_api.h"
static const XLA_FFI_Api* table = nullptr;
extern "C" const XLA_FFI_Api* knocked() { return table; }
extern "C" XLA_FFI_Error* knock(XLA_FFI_CallFrame* frame) {
  if (frame->api != nullptr) table = frame->api;
  for (auto* extension = frame->extension_start; extension != nullptr; extension = extension->next) {
    if (extension->type != XLA_FFI_Extension_Metadata) continue;
    auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  }
  return nullptr;
}
"""

IN_JAX = """
import ctypes, sys
import jax, numpy as np
from hlo_dispatch import kernels
from hlo_dispatch.vendor import kernels as planning, libraries
assert libraries.onednn()
knocking = ctypes.CDLL(sys.argv[1])
knocking.knocked.restype = ctypes.c_void_p
jax.devices()
jax.ffi.register_ffi_target("test.knock", jax.ffi.pycapsule(knocking.knock), platform="cpu")
assert knocking.knocked(), "a handler is given the table when it is registered"
library = ctypes.CDLL(str(kernels.library_path()))
library.hlo_dispatch_register.restype = ctypes.c_void_p
for _ in range(2):  # once more is once
    assert not library.hlo_dispatch_register(ctypes.c_void_p(knocking.knocked()), b"Host")
rows = {"dims": [5, 7], "strides": [7, 1]}, {"dims": [7, 3], "strides": [3, 1]}, {"dims": [5, 3], "strides": [3, 1]}
call = {"abi": 1, "library": libraries.onednn().version, "scratch": 0}
for role, said in zip(("src", "weights", "dst"), rows):
    call |= {f"{role}_type": "f32"} | {f"{role}_{name}": value for name, value in said.items()}
planned = planning.plan("onednn.matmul", call)
call["scratch"] = planned.scratch_bytes
attributes = {n: np.array(v, np.int64) if isinstance(v, list) else v if isinstance(v, str) else np.int64(v)
              for n, v in call.items()}
results = jax.ShapeDtypeStruct((5, 3), np.float32), jax.ShapeDtypeStruct((planned.scratch_bytes,), np.uint8)
random = np.random.default_rng(0)
a, b = random.standard_normal((5, 7), np.float32), random.standard_normal((7, 3), np.float32)
made = jax.jit(lambda a, b: jax.ffi.ffi_call("hlo_dispatch.onednn.matmul", results)(a, b, **attributes)[0])(a, b)
np.testing.assert_allclose(np.asarray(made), a @ b, rtol=1e-5, atol=1e-5)
print("equal")
"""


def test_jaxs_own_table_is_one_like_any(tmp_path: Path) -> None:
    jaxlib = importlib.util.find_spec("jaxlib")
    assert jaxlib
    assert jaxlib.submodule_search_locations
    include = f"-I{jaxlib.submodule_search_locations[0]}/include"
    done = child(IN_JAX, str(compiled(tmp_path / "libknock.so", KNOCK, include)))
    assert done.stdout.strip() == "equal", done.stderr
