"""oneMKL: shared library, version and threading runtime."""

from __future__ import annotations

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.native import native
from hlo_dispatch.vendor.library import Description, Library
from hlo_dispatch.vendor.shared_object import SharedObject

_FILE = SharedObject("libmkl_rt.so.3", distribution="mkl", variable="HLO_DISPATCH_MKL_LIBRARY")


def _load() -> Library:
    path = _FILE.find()
    try:
        version, runtime = native().load_onemkl(path)
    except ImportError as error:
        raise LibraryError(f"{error}; {_FILE.advice}") from error
    return Library(ONEMKL.name, path, version, runtime)


ONEMKL = Description("oneMKL", _load, variable=_FILE.variable, settings=("MKL_", "OMP_", "TBB_", "KMP_"))
