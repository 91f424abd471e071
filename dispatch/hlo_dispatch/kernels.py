"""Where the native library lies, for hosts that are not Python (kernels/hosts.md).

`libhlo_dispatch_kernels.so` has every kernel behind a C interface, and knows no Python.
"""

from __future__ import annotations

from pathlib import Path

from hlo_dispatch.vendor.native import native


def library_path() -> Path:
    """The file `libhlo_dispatch_kernels.so`, which this process's Python uses, too.

    Raises:
        LibraryError: the native part cannot be imported; so do the others.
    """
    return Path(native().library_path())


def include_path() -> Path:
    """The folder of C headers: a program includes `hlo_dispatch/kernels.h`."""
    return library_path().parent / "include"


def cmake_path() -> Path:
    """The folder where CMake finds the package `hlo_dispatch_kernels`."""
    return library_path().parent / "cmake"
