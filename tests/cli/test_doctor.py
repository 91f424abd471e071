"""`hlo-dispatch doctor`: everything is there in a test environment; what is not is named, with a way to get it."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_all_is_well_here(run):
    done = run("doctor")
    printed = done.stdout.decode()
    assert done.returncode == 0, printed
    for word in (
        "processor",
        "jaxlib",
        "oneDNN",
        "oneMKL",
        "onednn.convolution",
        "onednn.matmul",
        "onemkl.cholesky",
        "onemkl.fft",
        "scipy.svd",
        "everything is there",
    ):
        assert word in printed, word


@pytest.mark.parametrize("content", [None, "not a library"], ids=["absent", "text"])
def test_an_unusable_library_is_named(run, tmp_path, content):
    path = tmp_path / "libdnnl.so.3"
    if content is not None:
        path.write_text(content)
    done = run("doctor", env={"HLO_DISPATCH_ONEDNN_LIBRARY": str(path)})
    assert done.returncode == 1
    assert "missing: oneDNN" in done.stdout.decode()
    assert "HLO_DISPATCH_ONEDNN_LIBRARY" in done.stdout.decode()


def test_without_onemkl_the_rest_is_there(run, tmp_path):
    done = run("doctor", env={"HLO_DISPATCH_MKL_LIBRARY": str(tmp_path / "nowhere.so")})
    printed = done.stdout.decode()
    assert done.returncode == 1
    assert "missing: oneMKL" in printed
    assert "HLO_DISPATCH_MKL_LIBRARY" in printed
    assert "scipy.cholesky" in printed
    assert "blocked.cholesky" in printed
    assert "onemkl.cholesky" not in printed


def test_another_library_is_not_onednn(run):
    """libc loads well, and is no oneDNN."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    libc = next(line.split()[-1] for line in maps if line.rpartition("/")[2].startswith("libc.so"))
    done = run("doctor", env={"HLO_DISPATCH_ONEDNN_LIBRARY": libc})
    assert done.returncode == 1
    assert "is not oneDNN" in " ".join(done.stdout.decode().split())


def test_the_enabled_entry_point_is_reported(run):
    assert "enabled: every JAX program" in run("doctor", env={"HLO_DISPATCH": "1"}).stdout.decode()


def test_an_isa_cap_is_reported(run):
    said = run("doctor", env={"HLO_DISPATCH_MAX_CPU_ISA": "AVX2", "COLUMNS": "200"}).stdout.decode()
    assert "capped: HLO_DISPATCH_MAX_CPU_ISA is AVX2" in said
    assert "avx512f" not in said


def test_paths_for_hosts_without_python(run):
    done = run("doctor", "--paths")
    assert done.returncode == 0, done.stderr
    paths = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert list(paths) == ["library", "pjrt_plugin", "include", "cmake", "xla_include", "onednn", "onemkl", "svml"]
    assert Path(paths["library"]).name == "libhlo_dispatch_kernels.so"
    assert Path(paths["pjrt_plugin"]).is_file()
    assert (Path(paths["include"]) / "hlo_dispatch" / "kernels.h").is_file()
    assert (Path(paths["cmake"]) / "hlo_dispatch_kernels-config.cmake").is_file()
    assert (Path(paths["xla_include"]) / "xla" / "ffi" / "api" / "ffi.h").is_file()
    assert Path(paths["onednn"]).name == "libdnnl.so.3"
    assert Path(paths["onemkl"]).is_file()
    assert Path(paths["svml"]).name == "libsvml.so"


def test_paths_of_what_is_missing_are_empty(run, tmp_path):
    done = run("doctor", "--paths", env={"HLO_DISPATCH_MKL_LIBRARY": str(tmp_path / "nowhere.so")})
    assert done.returncode == 0, done.stderr
    assert "onemkl=" in done.stdout.decode().splitlines()
