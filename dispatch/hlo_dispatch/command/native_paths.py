"""`hlo-dispatch doctor --paths`: what a host that is not Python has to be told."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hlo_dispatch import kernels
from hlo_dispatch.errors import Unavailable
from hlo_dispatch.vendor.libraries import mkl, onednn


def native_paths() -> dict[str, Path | str]:
    """The native library, its header's folder and CMake's, XLA's FFI headers, and the vendors' libraries.

    What is not there is empty.

    Raises:
        LibraryError: the native part cannot be imported.
    """
    found: dict[str, Path | str] = {
        "library": kernels.library_path(),
        "include": kernels.include_path(),
        "cmake": kernels.cmake_path(),
        "xla_include": _xla_headers(),
    }
    for name, library in (("onednn", onednn()), ("onemkl", mkl())):
        found[name] = "" if isinstance(library, Unavailable) else library.path
    return found


def _xla_headers() -> Path | str:
    """Those that jaxlib brings, which is not imported for that."""
    jaxlib = importlib.util.find_spec("jaxlib")
    places = list(jaxlib.submodule_search_locations or ()) if jaxlib is not None else []
    return Path(places[0]) / "include" if places else ""
