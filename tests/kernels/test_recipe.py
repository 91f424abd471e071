"""The recipe for a kernel in CONTRIBUTING.md: its files, in a temporary checkout, are a kernel with all its tests.

tests/kernels/recipe/ holds what the recipe's steps add. The native library is built there by CMake, without the other
kernels: no list names one, so none is missed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_dispatch import kernels
from hlo_dispatch.vendor import registry

ROOT = Path(__file__).parents[2]
ADDED = Path(__file__).with_name("recipe")
# Of the libraries' folders: how they are opened.
KEPT_SOURCES = (
    "onemkl/library.cc", "svml/library.cc", "onednn/library.cc", "onednn/engine.cc", "onednn/native_engine.cc",
    "onednn/abandoned_threads.cc", "lapack/jax_calls.cc", "lapack/jax_only_calls.cc", "lapack/batch.cc",
    "lapack/matrix.cc", "lapack/options.cc", "lapack/perturbed_tridiagonal.cc",
)  # fmt: skip
GOLDENS = ("-q", "tests/test_golden.py", "-k", "cube/f32 or cube/square", "-p", "no:cacheprovider")
# What names a kernel and is no part of adding one: measurements, and what was written by releases.
KEPT = ("bench/results/", "tests/previous_release/", "tests/kernels/recipe/", "tests/bad_tables/")


def recipe() -> str:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    return page.partition("## Add a kernel\n")[2].partition("\n## ")[0]


def test_the_example_follows_the_recipe() -> None:
    """Each of its folders is one that a step names."""
    folders = {
        path.parent.relative_to(ADDED).as_posix() for path in ADDED.rglob("*.*") if "__pycache__" not in path.parts
    }
    named = re.findall(r"`([\w<>/.*]+)`", recipe())
    for folder in folders:
        place = re.sub("cube$", "<entry>", re.sub("elementwise$", "<folder>", folder))
        assert any(name.startswith(place) for name in named), (place, named)


def named_places() -> list[str]:
    """Regular expressions of the paths that the recipe's steps name."""
    names = (name for name in re.findall(r"`([\w<>/.*]+)`", recipe()) if "/" in name or "." in name)
    return [re.sub(r"<\w+>", "[^/]+", re.escape(name)).replace(r"\*", ".*") for name in names]


def git(*command: str) -> list[str]:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 128:  # no repository, or no such commit
        pytest.skip("this checkout has no such history")
    assert not done.returncode, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("kernel", ["own.argmax", "own.sort", "onednn.recurrent", "onednn.layer_norm", "onednn.concat"])
def test_the_recipe_names_what_names_a_real_kernel(kernel: str) -> None:
    """Every file that names it is in a place that a step of the recipe names."""
    places = named_places()
    for path in git("grep", "-lF", kernel):
        if not path.startswith(KEPT):
            assert any(re.match(place, path) for place in places), path


@pytest.mark.parametrize(
    "commit", ["efdd4b4", "3409f57", "31fd17f", "5ed9d78"], ids=["argmax", "sort", "recurrent", "top_k"]
)
def test_the_recipe_names_what_a_real_kernel_changed(commit: str) -> None:
    """Likewise every file of the commits that added the last ones."""
    places = named_places()
    for path in git("show", "--name-only", "--format=", commit):
        assert any(re.match(place, path) for place in places), path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout with the example's files, its native library built from them."""
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("there is no CMake or no Ninja on this machine")
    folder = tmp_path / "checkout"
    for name in ("dispatch", "patterns", "kernels", "tests", "bench"):
        shutil.copytree(
            ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "results")
        )
    for path in (folder / "kernels").glob("*/*.cc"):
        if (
            path.parent.name not in ("common", "c_api", "pjrt", "python")
            and f"{path.parent.name}/{path.name}" not in KEPT_SOURCES
        ):
            path.unlink()
    # What CMake compiles for several instruction sets by name has to be there, and takes no time when it is empty.
    for name in re.findall(r"\w+/\w+\.cc", (folder / "kernels" / "CMakeLists.txt").read_text()):
        with contextlib.suppress(FileExistsError), (folder / "kernels" / name).open("x"):
            pass
    shutil.copytree(ADDED, folder, dirs_exist_ok=True)
    build = folder / "build"
    options = ["-G", "Ninja", "-Wno-dev", "-DCMAKE_CXX_FLAGS=-O0", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (["cmake", "-S", "kernels", "-B", build, *options], ["ninja", "-C", build, "hlo_dispatch_kernels"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    package = folder / "dispatch" / "hlo_dispatch"
    installed = kernels.library_path()
    shutil.copy(build / installed.name, package)
    shutil.copy(installed.parent / "_kernels.abi3.so", package)
    (package / "patterns").symlink_to(folder / "patterns")
    # An editable install's finder comes before PYTHONPATH.
    (package.parent / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith('_editable_')]\n"
    )
    return folder


def tried(checkout: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(checkout / "dispatch")}
    done = subprocess.run(
        [sys.executable, *command], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.any_python
@pytest.mark.any_processor
def test_the_recipe_makes_a_kernel(checkout: Path) -> None:
    check_its_goldens(checkout)
    check_the_rest(checkout)


def check_its_goldens(checkout: Path) -> None:
    """They are written; that they are computed alike is seen with the rest."""
    tried(checkout, "-m", "pytest", *GOLDENS, "--write-goldens")
    assert 'custom_call_target="hlo_dispatch.own.cube"' in (checkout / "tests/golden/cube/f32.after.hlo").read_text()
    assert "near-miss" in (checkout / "tests/golden/cube/square_kept.refused.hlo").read_text()


# Its calls are right in the attribute fuzzer, and the registry, the table and the doctor know it.
CHECKS = f"""
import sys
sys.path[:0] = ['tests', 'tests/kernels']
import pytest
assert not pytest.main({list(GOLDENS)})
from family_cube import valid_calls
from worker_pool import Worker
with Worker() as worker:
    print([worker.run(call) for call in valid_calls()])
from hlo_dispatch.cli.sample_calls import answers
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.vendor import kernels, registry
print(registry.kernels()['own.cube'].target, load_tables(()).kernels['own.cube'].target)
print(answers('own.cube', kernels.library('own.cube').version)['f32'].implementation)
"""


def check_the_rest(checkout: Path) -> None:
    *tests, calls, targets, implementation = tried(checkout, "-c", CHECKS).splitlines()
    assert any("2 passed" in line for line in tests)
    assert calls == "[{'right': True}, {'right': True}]"
    assert (targets, implementation) == ("hlo_dispatch.own.cube hlo_dispatch.own.cube", "cube")


def test_the_example_is_in_the_checkout_only() -> None:
    assert "own.cube" not in registry.kernels()
