"""oneMKL: its file, its version, its threads."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.vendor.library import Description, Library
from hlo_dispatch.vendor.native import native
from hlo_dispatch.vendor.shared_object import SharedObject, open_with_dependencies, signals_kept

_FILE = SharedObject("libmkl_rt.so.3", distribution="mkl", variable="HLO_DISPATCH_MKL_LIBRARY")

# MKL_Set_Threading_Layer's numbers. The Intel and GNU layers want a libm and an OpenMP runtime preloaded.
_SEQUENTIAL, _TBB = 1, 4


def _load() -> Library:
    with signals_kept():
        path = _FILE.find()
        # Asked for anything while one of these is missing, oneMKL ends the process: look before asking.
        suffix = path.name.partition(".so")[2]
        for part in ("core", "intel_lp64", "sequential"):
            if not (path.parent / f"libmkl_{part}.so{suffix}").exists():
                raise LibraryError(f"{path} lacks libmkl_{part}.so{suffix} beside it; {_FILE.advice}")
        handle = open_with_dependencies(path)
        if not hasattr(handle, "MKL_Get_Version_String"):
            raise LibraryError(f"{path} is not oneMKL: it has no function MKL_Get_Version_String; {_FILE.advice}")
        runtime = _choose_threads(handle, path.parent / f"libmkl_tbb_thread.so{suffix}")
        text = ctypes.create_string_buffer(256)
        handle.MKL_Get_Version_String(text, len(text))
        found = re.search(rb"Version (\d[\w.]*)", text.value)
        version = found[1].decode() if found else "unknown"
        try:
            native().offer_mkl(path, version)
        except ImportError as error:
            raise LibraryError(f"{error}; {_FILE.advice}") from error
        return Library(ONEMKL.name, path, version, runtime)


def _choose_threads(handle: ctypes.CDLL, tbb_layer: Path) -> str:
    """Pick oneMKL's threading layer: TBB, as oneDNN has it too, unless the user chose one or TBB is missing."""
    chosen = os.environ.get("MKL_THREADING_LAYER")
    if chosen:
        return chosen.lower()
    tbb = tbb_layer.parent / "libtbb.so.12"
    if tbb_layer.exists() and tbb.exists():
        open_with_dependencies(tbb)
        handle.MKL_Set_Threading_Layer(_TBB)
        return "tbb"
    handle.MKL_Set_Threading_Layer(_SEQUENTIAL)
    return "sequential"


ONEMKL = Description("oneMKL", _load, variable=_FILE.variable, settings=("MKL_", "OMP_", "TBB_", "KMP_"))
