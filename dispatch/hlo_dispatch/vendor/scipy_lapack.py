"""SciPy's BLAS and LAPACK, which JAX itself calls."""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
from importlib import metadata
from pathlib import Path

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.native import native
from hlo_dispatch.vendor import registry
from hlo_dispatch.vendor.library import Description, Library

_MODULES = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
_PREFIXES = "sdcz"
"""The letters of the element types: not every routine is there for every one."""


def _load() -> Library:
    try:
        version = metadata.version(SCIPY.distribution)
        modules = [importlib.import_module(name) for name in _MODULES]
        capsules = {name: capsule for module in modules for name, capsule in module.__pyx_capi__.items()}
        addresses = {name: _address(name, capsules[name]) for name in _symbols() if name in capsules}
    except (ImportError, AttributeError, metadata.PackageNotFoundError) as error:
        raise LibraryError(f"SciPy's LAPACK cannot be used ({error}); `pip install scipy` provides it") from error
    native().offer_scipy(addresses, version)
    path = Path(sys.modules[_MODULES[-1]].__file__ or "")
    return Library(SCIPY.name, path, version, "its own")


def _symbols() -> list[str]:
    """The routines that its kernels call, for every element type."""
    routines = {routine for kernel in registry.kernels().values() if kernel.library == SCIPY.name
                for routine in kernel.routines}  # fmt: skip
    return [prefix + routine for routine in sorted(routines) for prefix in _PREFIXES]


def _address(name: str, capsule: object) -> int:
    """The address inside one of Cython's capsules, whose own name is the function's signature."""
    capsule_name = ctypes.pythonapi.PyCapsule_GetName
    capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature = capsule_name(capsule)
    if not re.match(rb"void \((?:char \*|int \*)", signature):
        raise LibraryError(f"SciPy's {name} is declared {signature.decode()}, and not with 32-bit integers")
    return pointer(capsule, signature)


SCIPY = Description("SciPy", _load, distribution="scipy")
