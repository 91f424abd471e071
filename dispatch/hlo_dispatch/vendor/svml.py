"""SVML, Intel's functions of vectors: shared library and version."""

from __future__ import annotations

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.native import native
from hlo_dispatch.vendor.library import Description, Library
from hlo_dispatch.vendor.shared_object import SharedObject

_FILE = SharedObject("libsvml.so", distribution="intel-cmplr-lib-rt", variable="HLO_DISPATCH_SVML_LIBRARY")


def _load() -> Library:
    path = _FILE.find()
    try:
        version, runtime = native().load_svml(path)
    except ImportError as error:
        raise LibraryError(f"{error}; {_FILE.advice}") from error
    return Library(SVML.name, path, version, runtime)


SVML = Description("SVML", _load, variable=_FILE.variable)
