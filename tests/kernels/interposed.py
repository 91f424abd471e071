"""Interposed oneDNN: some functions are the test's, in C++; the rest are the real ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from environment import clean_environment
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor import libraries


def is_sycl_build() -> bool:
    """Whether this environment's oneDNN was built for SYCL, whatever it runs over."""
    library = libraries.onednn()
    return not isinstance(library, Unavailable) and b"libsycl.so" in library.path.read_bytes()


OVER_SYCL = {"HLO_DISPATCH_ONEDNN_RUNTIME": "sycl"}
"""For the environment of what is about SYCL's own threads."""


def compiled(path: Path, source: str, *options: str) -> Path:
    """The shared library made of `source`."""
    compiler = shutil.which("g++")
    assert compiler, "the kernels were built, so there is a compiler"
    command = [compiler, "-x", "c++", "-shared", "-fPIC", "-o", str(path), "-", *options]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def interposed(directory: Path, source: str) -> Path:
    """A library for HLO_DISPATCH_ONEDNN_LIBRARY; the functions of `source` find the real ones by RTLD_NEXT."""
    real = libraries.onednn()
    assert not isinstance(real, Unavailable), real
    for file in real.path.parent.glob("*.so*"):
        (directory / file.name).symlink_to(file)
    needed = ["-Wl,--no-as-needed", f"-L{directory}", "-l:libdnnl.so.3", "-ldl", "-Wl,--allow-shlib-undefined"]
    return compiled(directory / "libinterposed.so", source, *needed)


def child(program: str, *arguments: str, seconds: int = 240, **variables: str) -> subprocess.CompletedProcess[str]:
    """`program` run by a new interpreter with nothing of ours in its environment."""
    command = [sys.executable, "-c", program, *arguments]
    unset = {name: value for name, value in clean_environment().items() if not name.startswith(("OCL_ICD", "CL_"))}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds, env=unset | variables, cwd=Path.cwd()
    )
