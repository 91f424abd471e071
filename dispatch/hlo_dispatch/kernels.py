"""Paths of the native library and its headers, for hosts without Python (kernels/hosts.md).

`libhlo_dispatch_kernels.so` contains all kernels behind a C interface.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.process.native import native
from hlo_dispatch.vendor.libraries import mkl, onednn, svml


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


def plugin_path() -> Path:
    """The PJRT plugin, `libhlo_dispatch_pjrt.so` (kernels/hosts.md)."""
    return library_path().with_name("libhlo_dispatch_pjrt.so")


def native_paths() -> dict[str, Path | str]:
    """The native library, the PJRT plugin, folders of headers and of CMake, and the vendors' libraries.

    `hlo-dispatch doctor --paths` prints them. What is not there is empty.

    Raises:
        LibraryError: the native part cannot be imported.
    """
    found: dict[str, Path | str] = {
        "library": library_path(),
        "pjrt_plugin": plugin_path(),
        "include": include_path(),
        "cmake": cmake_path(),
        "xla_include": _xla_headers(),
    }
    for name, library in (("onednn", onednn()), ("onemkl", mkl()), ("svml", svml())):
        found[name] = "" if isinstance(library, Unavailable) else library.path
    return found


def _xla_headers() -> Path | str:
    """XLA's FFI headers inside jaxlib, which is not imported for that."""
    jaxlib = importlib.util.find_spec("jaxlib")
    places = list(jaxlib.submodule_search_locations or ()) if jaxlib is not None else []
    return Path(places[0]) / "include" if places else ""
