"""oneDNN: its file, its version, its threads."""

from __future__ import annotations

import os

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.vendor.library import Description, Library
from hlo_dispatch.vendor.native import native
from hlo_dispatch.vendor.shared_object import SharedObject, open_with_dependencies, signals_kept
from hlo_dispatch.vendor.thread_binding import binds_threads

_FILE = SharedObject("libdnnl.so.3", distribution="onednn", variable="HLO_DISPATCH_ONEDNN_LIBRARY")


def _load() -> Library:
    with signals_kept():
        bind = binds_threads()
        path = _FILE.find()
        handle = open_with_dependencies(path)
        if not hasattr(handle, "dnnl_version"):
            raise LibraryError(f"{path} is not oneDNN: it has no function dnnl_version; {_FILE.advice}")
        try:
            version, runtime = native().load_onednn(path, bind)
        except ImportError as error:
            raise LibraryError(f"{error}; {_FILE.advice}") from error
        if not any(variable in os.environ for variable in ("ONEDNN_VERBOSE", "DNNL_VERBOSE")):
            # oneDNN would print its errors to standard output; they reach the user through us, as sentences.
            handle.dnnl_set_verbose(0)
    # Other runtimes compute in their caller's thread too, which is XLA's.
    return Library(ONEDNN.name, path, version, runtime, bound=bind and runtime == "sycl")


ONEDNN = Description(
    "oneDNN",
    _load,
    variable=_FILE.variable,
    settings=("ONEDNN_", "DNNL_", "OMP_", "TBB_", "KMP_", "OCL_CPU_", "DPCPP_CPU_"),
)
