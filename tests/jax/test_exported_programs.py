"""Programs that were compiled in one process and are run in another: saved executables, exports, JAX's cache."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from environment import clean_environment
from warm import run_python

PROGRAMS = """
import os, pickle, sys
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from jax import export
from jax.experimental import serialize_executable

random = np.random.default_rng(5)
def numbers(*shape):
    return random.standard_normal(shape, dtype="float32")

def convolution(x, w):
    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))

def product(x, w):
    return jnp.tanh(x @ w)

def cholesky(x):
    return jnp.linalg.cholesky(x @ x.T + 96 * jnp.eye(96))

def eigenvalues(x):
    return jnp.linalg.eigvalsh(x + x.T)

ALL = {
    "convolution": (convolution, (numbers(1, 16, 16, 8), numbers(3, 3, 8, 16))),
    "product": (product, (numbers(32, 64), numbers(64, 48))),
    "cholesky": (cholesky, (numbers(96, 96),)),
    "eigenvalues": (eigenvalues, (numbers(64, 64),)),
}
folder, names = Path(sys.argv[1]), sys.argv[2:]

def calls(compiled):
    return compiled.as_text().count('custom_call_target="hlo_dispatch.')
"""
SAVE = """
import hlo_dispatch
for name, (program, arguments) in ALL.items():
    with hlo_dispatch.enabled(policy="always"):
        compiled = jax.jit(program).lower(*arguments).compile()
        exported = export.export(jax.jit(program))(*arguments)
    assert calls(compiled), name
    (folder / name).write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
    np.save(folder / f"{name}.npy", compiled(*arguments))
    (folder / f"{name}.export").write_bytes(exported.serialize())
"""
LOAD = """
for name in names:
    compiled = serialize_executable.deserialize_and_load(*pickle.loads((folder / name).read_bytes()))
    print(name, calls(compiled) > 0, np.array_equal(compiled(*ALL[name][1]), np.load(folder / f"{name}.npy")))
"""
NAMES = ("convolution", "product", "cholesky", "eigenvalues")
DOORS = {
    "environment": ("", {"HLO_DISPATCH": "1"}),
    "install": ("import hlo_dispatch; hlo_dispatch.install()", {}),
    "install never": ('import hlo_dispatch; hlo_dispatch.install(policy="never")', {}),
    "register_kernels": ("import hlo_dispatch; hlo_dispatch.register_kernels()", {}),
    "register_kernels after the backend": (
        "import hlo_dispatch; jax.devices(); hlo_dispatch.register_kernels(); hlo_dispatch.register_kernels()",
        {},
    ),
}


def run(code: str, folder: Path, *names: str, **environment: str) -> subprocess.CompletedProcess:
    return run_python(PROGRAMS + code, folder, *names, environment=clean_environment(**environment))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with every program's executable, export and result, made by a process that is gone."""
    folder = tmp_path_factory.mktemp("saved")
    done = run(SAVE, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("door", DOORS)
def test_executables_run_wherever_the_kernels_are_registered(saved: Path, door: str) -> None:
    code, environment = DOORS[door]
    done = run(code + LOAD, saved, *NAMES, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} True True" for name in NAMES]


def test_nothing_is_loaded_before_an_executable_needs_it(saved: Path) -> None:
    code = """
import hlo_dispatch
hlo_dispatch.register_kernels()
def loaded():
    maps = Path("/proc/self/maps").read_text()
    return [name for name in ("libdnnl", "libmkl") if name in maps]
from jax._src import xla_bridge
print(loaded(), xla_bridge.backends_are_initialized())
"""
    done = run(code + LOAD + "print(loaded())", saved, "product")
    assert done.stdout.splitlines() == ["[] False", "product True True", "['libdnnl']"], done.stderr


def test_executables_are_loaded_by_several_threads(saved: Path) -> None:
    code = """
import faulthandler, threading
import hlo_dispatch
faulthandler.dump_traceback_later(150, exit=True)
hlo_dispatch.register_kernels()
jax.devices()
results = []
def load(name):
    compiled = serialize_executable.deserialize_and_load(*pickle.loads((folder / name).read_bytes()))
    results.append(np.array_equal(compiled(*ALL[name][1]), np.load(folder / f"{name}.npy")))
threads = [threading.Thread(target=load, args=(name,)) for name in 3 * names]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results)
"""
    done = run(code, saved, *NAMES)
    assert done.stdout.strip() == str([True] * 12), done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_where_nobody_registered_the_kernels(saved: Path, name: str) -> None:
    done = run(LOAD, saved, name)
    assert done.returncode == 1, "a crash, or a result from nowhere"
    assert "hlo_dispatch." in done.stderr


REGISTERED = "import hlo_dispatch; hlo_dispatch.register_kernels()\n"


@pytest.mark.parametrize(
    ("name", "library", "variable"),
    [
        ("convolution", "oneDNN", "HLO_DISPATCH_ONEDNN_LIBRARY"),
        ("product", "oneDNN", "HLO_DISPATCH_ONEDNN_LIBRARY"),
        ("eigenvalues", "oneMKL", "HLO_DISPATCH_MKL_LIBRARY"),
    ],
)
def test_a_missing_library_is_said(saved: Path, name: str, library: str, variable: str) -> None:
    done = run(REGISTERED + LOAD, saved, name, **{variable: "/nowhere/lib.so"})
    assert done.returncode == 1
    assert f"this executable calls {library}, which is not loaded in this process" in done.stderr
    assert f"{variable} names /nowhere/lib.so, which is not a file" in done.stderr


def test_another_version_is_said(saved: Path, tmp_path: Path) -> None:
    content = (saved / "product").read_bytes()
    version = re.search(rb'library = "(\d)[\d.]*"', content)
    assert version is not None
    (tmp_path / "product").write_bytes(content.replace(version[0], version[0].replace(version[1], b"9", 1)))
    done = run(REGISTERED + LOAD, tmp_path, "product")
    assert done.returncode == 1
    assert re.search(r"planned for oneDNN 9[\d.]*, but oneDNN [\d.]+ is loaded; compile it again", done.stderr)


@pytest.mark.parametrize("name", ["convolution", "product"])
def test_on_a_lesser_processor(saved: Path, name: str) -> None:
    """It runs there too, to rounding, or says that it was planned for another one."""
    code = LOAD.replace("np.array_equal(", "np.allclose(").replace('.npy"))', '.npy"), 1e-4, 1e-4)')
    done = run(REGISTERED + code, saved, name, ONEDNN_MAX_CPU_ISA="AVX2")
    if done.returncode:
        assert done.returncode == 1, "a crash"
        assert "compile it again" in done.stderr
    else:
        assert done.stdout.split() == [name, "True", "True"]


# --- exports, and JAX's own cache ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["", 'import hlo_dispatch; hlo_dispatch.install(policy="always")'], ids=["stock", "ours"]
)
def test_exports_are_programs_like_any_other(saved: Path, tmp_path: Path, code: str) -> None:
    """Exported with or without the pass, compiled where they are loaded, with or without it."""
    export_there = """
for name in names:
    (folder / f"{name}.again").write_bytes(export.export(jax.jit(ALL[name][0]))(*ALL[name][1]).serialize())
    for file in (f"{name}.export", f"{name}.again"):
        exported = export.deserialize(bytearray((folder / file).read_bytes()))
        result = jax.jit(exported.call)(*ALL[name][1])
        print(np.allclose(result, np.load(folder / f"{name}.npy"), 1e-4, 1e-4))
"""
    done = run(code + export_there, saved, *NAMES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 2 * len(NAMES)


CACHED = """
jax.config.update("jax_compilation_cache_dir", str(folder))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from jax import monitoring
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
for name in names:
    hits.clear()
    compiled = jax.jit(ALL[name][0]).lower(*ALL[name][1]).compile()
    assert np.isfinite(np.asarray(compiled(*ALL[name][1]))).all()
    print(name, len(hits), calls(compiled) > 0)
"""


def test_the_compilation_cache_on_either_side(tmp_path: Path) -> None:
    always = {"HLO_DISPATCH": "1", "HLO_DISPATCH_POLICY": "always"}

    def cached(**environment: str) -> list[str]:
        done = run(CACHED, tmp_path, *NAMES, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert cached(**always) == [f"{name} 0 True" for name in NAMES]
    assert cached() == [f"{name} 0 False" for name in NAMES], "not ours"
    assert cached(**always) == [f"{name} 1 True" for name in NAMES]
    assert cached() == [f"{name} 1 False" for name in NAMES]
