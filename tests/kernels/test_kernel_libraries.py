"""Finding the vendor libraries: present, missing, not the right one, too old, named by the user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from interposed import OVER_SYCL, is_sycl_build

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries
from warm import run_python

pytestmark = pytest.mark.any_processor

SURVEY = """
from hlo_dispatch.vendor import kernels, libraries
onednn = libraries.onednn()
is_there = hasattr(onednn, "path")
print(onednn.path if is_there else onednn.sentence)
print("usable" if is_there else kernels.plan("onednn.matmul", {"abi": 1}))
kernels.registrations()
"""


def survey(code: str = SURVEY, **variables: str) -> list[str]:
    """Run in a new process, where nothing is loaded yet; it must end well whatever is found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HLO_DISPATCH", "OCL_ICD"))}
    finished = run_python(code, environment=environment | variables)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def shared_library(directory: Path, source: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    path = directory / "libdnnl.so.3"
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-o", str(path), "-"]
    subprocess.run(command, input=source, text=True, check=True)
    return path


@pytest.mark.onemkl
def test_this_environments_libraries():
    onednn, mkl = libraries.onednn(), libraries.mkl()
    assert not isinstance(onednn, Unavailable), onednn
    assert onednn.version.startswith("3.")
    assert onednn.path.name == "libdnnl.so.3"
    assert onednn is libraries.onednn()
    assert not isinstance(mkl, Unavailable), mkl
    assert mkl.version.startswith("20")
    assert mkl.runtime in ("tbb", "sequential")
    assert libraries.survey() == {
        "oneDNN": onednn, "oneMKL": mkl, "SciPy": libraries.scipy(), "SVML": libraries.svml(),
    }  # fmt: skip


def test_nothing_is_loaded_by_importing():
    maps = survey("from hlo_dispatch.vendor import kernels, libraries\nprint(open('/proc/self/maps').read())")
    assert not any("libdnnl" in line or "libmkl" in line for line in maps)


def test_a_missing_library_is_a_sentence():
    hide = "import sys\nsys.prefix = '/nowhere'\nimport site, importlib.metadata as m\nsite.ENABLE_USER_SITE = False\n"
    hide += "m.distribution = lambda name: (_ for _ in ()).throw(m.PackageNotFoundError(name))\n"
    sentence, refusal = survey(hide + SURVEY)
    assert sentence.startswith("libdnnl.so.3 was not found in this Python environment")
    assert "`pip install onednn`" in sentence
    assert "HLO_DISPATCH_ONEDNN_LIBRARY" in sentence
    assert refusal == f"library-missing: {sentence}"


def test_the_wheels_own_record_finds_it_elsewhere():
    path, usable = survey("import sys\nsys.prefix = '/nowhere'\n" + SURVEY)
    assert Path(path).name == "libdnnl.so.3"
    assert usable == "usable"


def test_a_variable_names_another_file(tmp_path):
    onednn = libraries.onednn()
    assert not isinstance(onednn, Unavailable)
    # A copy of the names: dependencies are looked for beside the file that the name leads to.
    link = tmp_path / "my-own.so"
    link.symlink_to(onednn.path)
    path, usable = survey(HLO_DISPATCH_ONEDNN_LIBRARY=str(link))
    assert Path(path) == onednn.path.resolve()
    assert usable == "usable"


def test_a_variable_names_no_file(tmp_path):
    sentence, _ = survey(HLO_DISPATCH_ONEDNN_LIBRARY=str(tmp_path / "absent.so"))
    assert sentence.startswith(f"HLO_DISPATCH_ONEDNN_LIBRARY names {tmp_path}/absent.so, which is not a file")


def test_a_file_that_is_no_library(tmp_path):
    path = tmp_path / "libdnnl.so.3"
    path.write_text("not a library")
    sentence, _ = survey(HLO_DISPATCH_ONEDNN_LIBRARY=str(path))
    assert sentence.startswith(f"{path} cannot be loaded")


VERSION = """
struct version { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; };
const struct version *dnnl_version(void) { static struct version v = {%s, "", 2, 0}; return &v; }
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("int unrelated(void) { return 1; }", "is not oneDNN: it has no function dnnl_version"),
        (VERSION % "2, 7, 5", "is oneDNN 2.7.5; a 3.x release from 3.2 on is needed"),
        (VERSION % "3, 1, 0", "is oneDNN 3.1.0; a 3.x release from 3.2 on is needed"),
        (VERSION % "4, 0, 0", "is oneDNN 4.0.0; a 3.x release from 3.2 on is needed"),
        (VERSION % "3, 9, 0", "is not a whole oneDNN: it lacks dnnl_engine_create"),
    ],
)
def test_a_library_that_is_not_a_usable_onednn(tmp_path, source, words):
    path = shared_library(tmp_path, source)
    sentence, refusal = survey(HLO_DISPATCH_ONEDNN_LIBRARY=str(path))
    assert sentence.startswith(f"{path} {words}")
    assert "`pip install onednn`" in sentence
    assert refusal.startswith("library-missing: ")


def test_an_engine_that_cannot_start_is_a_refusal():
    if not is_sycl_build():
        pytest.skip("only the SYCL runtime needs a driver")
    code = """
from hlo_dispatch.vendor import kernels
square = {"dims": [2, 2], "strides": [2, 1], "type": "f32"}
spec = {f"{role}_{key}": value for role in ("src", "weights", "dst") for key, value in square.items()}
print(kernels.plan("onednn.matmul", {"abi": 1, **spec}))
"""
    *_, refusal = survey(code, OCL_ICD_FILENAMES="/nowhere/libnothing.so", **OVER_SYCL)
    assert refusal.startswith("library-missing: oneDNN ")
    assert "has no CPU engine" in refusal
    assert "OCL_ICD_FILENAMES" in refusal


def test_an_executable_without_the_library_says_so():
    code = """
import jax, numpy as np
from hlo_dispatch.vendor import kernels
jax.devices()
found = kernels.registrations()
for name, capsules in found.types.items():
    jax.ffi.register_ffi_type(name, capsules, platform="cpu")
for name, stages in found.targets.items():
    jax.ffi.register_ffi_target(name, stages, platform="cpu")
one = jax.ShapeDtypeStruct((1,), np.uint8)
try:
    jax.jit(lambda: jax.ffi.ffi_call("hlo_dispatch.onednn.matmul", (one, one))(abi=np.int64(1), library="2.0"))()
except jax.errors.JaxRuntimeError as error:
    print(error)
"""
    loaded = "\n".join(survey(code))
    assert re.search(r"planned for oneDNN 2.0, but oneDNN [\d.]+ is loaded; compile it again", loaded)
    sentence = "\n".join(survey(code, HLO_DISPATCH_ONEDNN_LIBRARY="/nowhere/libdnnl.so"))
    assert "this executable calls oneDNN, which is not loaded in this process" in sentence
    assert "/nowhere/libdnnl.so, which is not a file" in sentence


@pytest.mark.onemkl
def test_mkl_without_its_parts(tmp_path):
    mkl = libraries.mkl()
    assert not isinstance(mkl, Unavailable)
    copy = tmp_path / "libmkl_rt.so.3"
    shutil.copy(mkl.path, copy)
    code = "from hlo_dispatch.vendor import libraries\nprint(libraries.mkl().sentence)"
    [sentence] = survey(code, HLO_DISPATCH_MKL_LIBRARY=str(copy))
    assert sentence.startswith(f"{copy} lacks libmkl_core.so.3 beside it")
    assert "`pip install mkl`" in sentence
