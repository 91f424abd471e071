"""Kernel registry: consistent with the tables, the libraries' descriptions and JAX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_dispatch.cli.sample_calls import answers
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.pattern.algorithms import LIBRARIES
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.vendor import kernels, libraries, registry

SOURCES = Path(__file__).parents[2] / "kernels"
KERNELS = registry.kernels()


def folder(name: str) -> str:
    return name.partition(".")[0]


def test_they_are_in_order_and_none_is_forgotten() -> None:
    assert list(KERNELS) == sorted(KERNELS)
    objects = re.compile(r"^const Family<(.*?)>", re.MULTILINE)
    families = [found for path in SOURCES.glob("*/*.cc") for found in objects.findall(path.read_text())]
    # One kernel for each library of those that have several, and for each object of oneDNN's; and the one that holds
    # calls of the others.
    assert len(KERNELS) == 1 + sum(max(1, len(re.findall(r"\bk[A-Z]\w+", family))) for family in families)


def test_the_table_says_what_the_registry_says() -> None:
    shipped = load_tables(()).kernels
    assert set(shipped) == set(KERNELS)
    for name, binding in shipped.items():
        assert (binding.target, binding.library) == (KERNELS[name].target, folder(name)), name
        assert {"abi", "library"} <= set(binding.attributes), name


def test_a_routines_kernels_follow_from_its_entry() -> None:
    shipped = load_tables(()).kernels
    for kernel in ("onemkl.cholesky", "scipy.cholesky", "blocked.cholesky"):
        assert list(shipped[kernel].operands) == ["a"]
        assert set(shipped[kernel].attributes) == {
            *("abi", "library", "type", "a_dims", "a_strides", "factor_dims", "factor_strides"),
            *("info_dims", "info_strides", "uplo", "symmetrised"),
        }


def test_libraries_are_described_once() -> None:
    of_folder = {(folder(name), kernel.library) for name, kernel in KERNELS.items()}
    assert sorted(name for name, _ in of_folder) == sorted(LIBRARIES), "a folder is one library's"
    assert {library for _, library in of_folder} == set(libraries.DESCRIPTIONS)


@pytest.mark.parametrize("name", libraries.DESCRIPTIONS)
def test_a_library_answers_with_its_own_name(name: str) -> None:
    library = libraries.loaded(name)
    assert not isinstance(library, Unavailable), library
    assert library.name == name
    assert library.path.exists()
    assert library.version[0].isdigit()


def test_jax_gets_every_kernel() -> None:
    targets = kernels.registrations().targets
    assert set(targets) == {kernel.target for kernel in KERNELS.values()}
    assert all(set(stages) == {"instantiate", "execute"} for stages in targets.values())


@pytest.mark.parametrize("name", KERNELS)
def test_doctor_has_a_call_for_every_kernel(name: str) -> None:
    library = kernels.library(name)
    assert not isinstance(library, Unavailable)
    assert answers(name, library.version)


def test_what_is_common_knows_no_library() -> None:
    for path in (SOURCES / "common").iterdir():
        included = re.findall(r'#include "(\w+)/', path.read_text())
        assert set(included) <= {"common", "xla"}, path.name


def test_routines_are_offered_to_those_who_call_them() -> None:
    assert KERNELS["scipy.eigh"].routines == ("syevd", "heevd")
    assert not KERNELS["blocked.cholesky"].routines
    assert KERNELS["blocked.cholesky"].instructions == "AVX-512"


@pytest.mark.onemkl
def test_the_key_of_measurements_names_every_library() -> None:
    """In this order and in these words: others make stores of earlier versions useless."""
    own, onednn, mkl, scipy = this_context().libraries
    assert own == f"hlo-dispatch {registry.own_version()} XLA's threads"
    found = libraries.onednn()
    assert not isinstance(found, Unavailable)
    assert onednn == f"oneDNN {found.version} {found.threads}"
    assert mkl.startswith("oneMKL 20")
    assert scipy.startswith("SciPy 1.")
    assert this_context().abi == registry.abi()


def test_settings_of_libraries_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "ONEDNN_MAX_CPU_ISA DNNL_VERBOSE MKL_NUM_THREADS OMP_NUM_THREADS TBB_X KMP_AFFINITY OCL_CPU_X DPCPP_CPU_X"
    ).split()
    for name in [name for name in os.environ if name.startswith(("ONEDNN", "DNNL", "MKL", "OMP", "TBB", "KMP"))]:
        monkeypatch.delenv(name)
    for name in names:
        monkeypatch.setenv(name, "1")
    assert set(libraries.settings()) == set(names)


MISSING = """
import sys
sys.modules["hlo_dispatch._kernels"] = None
import hlo_dispatch
from hlo_dispatch.cli.doctor import examine
from hlo_dispatch.vendor import kernels, registry
found = {finding.subject: finding for finding in examine()}
assert "cannot be imported" in found["kernels"].sentence and not found["kernels"].good
assert "cannot be imported" in kernels.library("onednn.matmul").sentence
module = open(sys.argv[1]).read()
for use in (registry.kernels, registry.abi, hlo_dispatch.install, lambda: hlo_dispatch.rewrite(module)):
    try:
        use()
    except hlo_dispatch.LibraryError as error:
        print(error)
"""


@pytest.mark.any_processor
def test_without_the_native_part() -> None:
    """It is said in a sentence, and programs run as they would without us."""
    module = sorted((SOURCES.parent / "tests" / "golden" / "dot").glob("*.before.hlo"))[0]
    command = [sys.executable, "-c", MISSING, str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the native part of hlo-dispatch cannot be imported") == 4
