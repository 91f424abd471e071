"""Finds and loads the vendor libraries, at the first use and never at import.

``onednn()`` and ``mkl()`` answer with a :class:`Library` that is loaded and usable in this process, or with an
:class:`Unavailable` whose sentence says why not and what to do. They never raise. Called by ``kernels.py``
(oneDNN), the command line's ``doctor`` and whoever wants to know.

The wheels put their files into the environment's ``lib`` directory without telling the loader about it, so
whatever dependency the loader misses is loaded first, from beside the library.
"""

from __future__ import annotations

import ctypes
import os
import re
import site
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hlo_dispatch.errors import LibraryError, Unavailable
from hlo_dispatch.vendor.thread_binding import binds_threads

ONEDNN_VARIABLE = "HLO_DISPATCH_ONEDNN_LIBRARY"
MKL_VARIABLE = "HLO_DISPATCH_MKL_LIBRARY"

_MISSING_DEPENDENCY = re.compile(r"^([^/:\s]+\.so[.\w]*): cannot open shared object file")
# More than any vendor library has (oneDNN's SYCL build misses five); only stops a loader that repeats itself.
_MOST_DEPENDENCIES = 40

# MKL_Set_Threading_Layer's numbers. The Intel and GNU layers want a libm and an OpenMP runtime preloaded.
_MKL_SEQUENTIAL, _MKL_TBB = 1, 4


@dataclass(frozen=True)
class Library:
    """A vendor library that is loaded in this process."""

    name: str
    """As people call it: oneDNN, oneMKL."""
    path: Path
    """The file."""
    version: str
    """As the library itself says, such as 3.13.2."""
    runtime: str
    """What its threads run on: sycl, openmp, tbb, threadpool, sequential."""
    bound: bool = False
    """Whether each of its threads has a processor of its own (binding.py)."""

    @property
    def threads(self) -> str:
        """The runtime, for people and for what a measurement is valid for."""
        return f"{self.runtime}, a processor for each thread" if self.bound else self.runtime


def onednn() -> Library | Unavailable:
    """Return the process's oneDNN, found and loaded at the first call."""
    return _once("oneDNN", lambda: _keeping_signals(_load_onednn))


def mkl() -> Library | Unavailable:
    """Return the process's oneMKL, found and loaded at the first call."""
    return _once("oneMKL", lambda: _keeping_signals(_load_mkl))


def scipy() -> Library | Unavailable:
    """Return the BLAS and LAPACK inside SciPy, which JAX itself calls; looked up at the first call."""
    return _once("SciPy", _load_scipy)


def own() -> Library | Unavailable:
    """Return our own code, which is part of the extension module: linear algebra, and copies for oneDNN."""
    # The version is kernels/lapack/provider.cc's, and counts up when results or speed of any of it change.
    return _once("hlo-dispatch", lambda: Library("hlo-dispatch", Path(_native().__file__), "5", "XLA's threads"))


def survey() -> dict[str, Library | Unavailable]:
    """Return every library the project can use, by name."""
    return {"oneDNN": onednn(), "oneMKL": mkl(), "SciPy": scipy()}


_answers: dict[str, Library | Unavailable] = {}
_lock = threading.RLock()
# A child that is forked while a library is being loaded would find half of it, and the lock taken for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def _once(name: str, load: Callable[[], Library]) -> Library | Unavailable:
    with _lock:
        if name not in _answers:
            try:
                _answers[name] = load()
            except LibraryError as error:
                _answers[name] = Unavailable(name, str(error))
        return _answers[name]


def _keeping_signals(load: Callable[[], Library]) -> Library:
    """What `load` loads, while the process keeps its signal handlers."""
    kept = _native().keep_signals()
    try:
        return load()
    finally:
        del kept  # which puts back what was taken over


def _load_onednn() -> Library:
    bind = binds_threads()
    path = _find("libdnnl.so.3", "onednn", ONEDNN_VARIABLE)
    handle = _open(path)
    if not hasattr(handle, "dnnl_version"):
        raise LibraryError(
            f"{path} is not oneDNN: it has no function dnnl_version; {_advice('onednn', ONEDNN_VARIABLE)}"
        )
    try:
        version, runtime = _native().load_onednn(path, bind)
    except ImportError as error:
        raise LibraryError(f"{error}; {_advice('onednn', ONEDNN_VARIABLE)}") from error
    if not any(variable in os.environ for variable in ("ONEDNN_VERBOSE", "DNNL_VERBOSE")):
        # oneDNN would print its errors to standard output; they reach the user through us, as sentences.
        handle.dnnl_set_verbose(0)
    # Other runtimes compute in their caller's thread too, which is XLA's.
    return Library("oneDNN", path, version, runtime, bound=bind and runtime == "sycl")


def _load_mkl() -> Library:
    path = _find("libmkl_rt.so.3", "mkl", MKL_VARIABLE)
    # Asked for anything while one of these is missing, oneMKL ends the process: look before asking.
    suffix = path.name.partition(".so")[2]
    for part in ("core", "intel_lp64", "sequential"):
        if not (path.parent / f"libmkl_{part}.so{suffix}").exists():
            raise LibraryError(f"{path} lacks libmkl_{part}.so{suffix} beside it; {_advice('mkl', MKL_VARIABLE)}")
    handle = _open(path)
    if not hasattr(handle, "MKL_Get_Version_String"):
        raise LibraryError(
            f"{path} is not oneMKL: it has no function MKL_Get_Version_String; {_advice('mkl', MKL_VARIABLE)}"
        )
    runtime = _choose_mkl_threads(handle, path.parent / f"libmkl_tbb_thread.so{suffix}")
    text = ctypes.create_string_buffer(256)
    handle.MKL_Get_Version_String(text, len(text))
    version = re.search(rb"Version (\d[\w.]*)", text.value)
    library = Library("oneMKL", path, version[1].decode() if version else "unknown", runtime)
    try:
        _native().offer_mkl(path, library.version)
    except ImportError as error:
        raise LibraryError(f"{error}; {_advice('mkl', MKL_VARIABLE)}") from error
    return library


_ROUTINES = {
    "cython_blas": ("trsm", "gemm"),
    "cython_lapack": ("potrf", "getrf", "geqrf", "orgqr", "ungqr", "syevd", "heevd", "gesdd"),
}
"""The Fortran routines that kernels/lapack calls, by SciPy's module; not every one is there for every type."""


def _load_scipy() -> Library:
    import importlib

    addresses: dict[str, int] = {}
    try:
        version = metadata.version("scipy")
        for module, routines in _ROUTINES.items():
            capsules = importlib.import_module(f"scipy.linalg.{module}").__pyx_capi__
            for name in (prefix + routine for routine in routines for prefix in "sdcz"):
                if name in capsules:
                    addresses[name] = _address(name, capsules[name])
    except (ImportError, AttributeError, metadata.PackageNotFoundError) as error:
        raise LibraryError(f"SciPy's LAPACK cannot be used ({error}); `pip install scipy` provides it") from error
    _native().offer_scipy(addresses, version)
    path = Path(sys.modules["scipy.linalg.cython_lapack"].__file__ or "")
    return Library("SciPy", path, version, "its own")


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


def _native() -> Any:
    try:
        from hlo_dispatch import _kernels
    except ImportError as error:
        raise LibraryError(f"the native part of hlo-dispatch cannot be imported ({error}); install it again") from error
    return _kernels


def _choose_mkl_threads(handle: ctypes.CDLL, tbb_layer: Path) -> str:
    """Pick oneMKL's threading layer: TBB, as oneDNN has it too, unless the user chose one or TBB is missing."""
    chosen = os.environ.get("MKL_THREADING_LAYER")
    if chosen:
        return chosen.lower()
    tbb = tbb_layer.parent / "libtbb.so.12"
    if tbb_layer.exists() and tbb.exists():
        _open(tbb)
        handle.MKL_Set_Threading_Layer(_MKL_TBB)
        return "tbb"
    handle.MKL_Set_Threading_Layer(_MKL_SEQUENTIAL)
    return "sequential"


def _find(file: str, distribution: str, variable: str) -> Path:
    named = os.environ.get(variable)
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise LibraryError(f"{variable} names {named}, which is not a file; unset it or name the library's file")
        return path.resolve()
    for directory in _directories(distribution, file):
        if (directory / file).is_file():
            return directory / file
    raise LibraryError(f"{file} was not found in this Python environment; {_advice(distribution, variable)}")


def _directories(distribution: str, file: str) -> Iterator[Path]:
    """Yield where pip may have put the file: this environment, the user's own, wherever the wheel says."""
    yield Path(sys.prefix) / "lib"
    if site.ENABLE_USER_SITE:
        yield Path(site.getuserbase()) / "lib"
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        return
    for entry in files:
        if entry.name == file:
            yield Path(str(entry.locate())).resolve().parent


def _open(path: Path) -> ctypes.CDLL:
    """Load a shared library and, from beside it, whatever the loader says it misses."""
    for _ in range(_MOST_DEPENDENCIES):
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            missing = _MISSING_DEPENDENCY.match(str(error))
            if missing is None or not (path.parent / missing[1]).exists():
                raise LibraryError(f"{path} cannot be loaded: {error}") from error
            _open(path.parent / missing[1])
    raise LibraryError(f"{path} cannot be loaded: its dependencies never end")


def _advice(distribution: str, variable: str) -> str:
    return f"`pip install {distribution}` provides it, or name another file in {variable}"
