"""oneDNN: shared library, version and threading runtime."""

from __future__ import annotations

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.native import native
from hlo_dispatch.vendor.library import Description, Library
from hlo_dispatch.vendor.shared_object import SharedObject
from hlo_dispatch.vendor.thread_binding import binds_threads

RUNTIME_VARIABLE = "HLO_DISPATCH_ONEDNN_RUNTIME"
"""Variable with the runtime of a oneDNN built for SYCL: `sycl` or `tbb` (kernels/onednn/native_engine.h)."""

_FILE = SharedObject("libdnnl.so.3", distribution="onednn", variable="HLO_DISPATCH_ONEDNN_LIBRARY")


def _load() -> Library:
    bind = binds_threads()
    path = _FILE.find()
    try:
        version, runtime, note = native().load_onednn(path, bind)
    except ImportError as error:
        advice = "" if RUNTIME_VARIABLE in str(error) else f"; {_FILE.advice}"
        raise LibraryError(f"{error}{advice}") from error
    # Other runtimes compute in their caller's thread too, which is XLA's.
    return Library(ONEDNN.name, path, version, runtime, note, bound=bind and runtime == "sycl")


ONEDNN = Description(
    "oneDNN",
    _load,
    variable=_FILE.variable,
    settings=("ONEDNN_", "DNNL_", "OMP_", "TBB_", "KMP_", "OCL_CPU_", "DPCPP_CPU_"),
)
