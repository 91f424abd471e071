"""The environment of processes that tests start."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

# The tests' own store, no measuring unless it is asked for (tests/conftest.py), the ISA cap.
_KEPT = (
    *("HLO_DISPATCH_CACHE_DIR", "HLO_DISPATCH_MEASURE_SECONDS", "HLO_DISPATCH_MAX_CPU_ISA"),
    # A machine without oneMKL is simulated by a file name that does not exist.
    "HLO_DISPATCH_MKL_LIBRARY",
)
_OPTIMIZATION = "--xla_backend_optimization_level="

WITH_COMPILATION_CACHE = """
import sys, jax
from jax import monitoring
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
"""
"""Code of a process whose first argument is a folder for JAX's compilation cache: what is found there is in `hits`."""


def import_path(*first: str) -> str:
    """PYTHONPATH of a child process that is to import what this process does, from whatever folder it is run in.

    Args:
        first: folders that it looks in before.
    """
    inherited = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys([*first, *inherited, *_checkout()]))


def _checkout() -> list[str]:
    """The folder that hlo_dispatch is imported from, where it is not installed but on this process's path."""
    import hlo_dispatch

    folder = str(Path(hlo_dispatch.__file__).resolve().parents[1])
    installed = {str(Path(entry).resolve()) for entry in [*site.getsitepackages(), site.getusersitepackages()]}
    return [folder] if folder not in installed and folder in {str(Path(entry).resolve()) for entry in sys.path} else []


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what changes what hlo-dispatch does, and with `more`.

    What `more` says of PYTHONPATH comes before what this process has there.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HLO_DISPATCH") or name in _KEPT}
    # What runs in it may be large, and as slow as it is where LLVM does nothing (.ci/test).
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(_OPTIMIZATION)]
    clean |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)} | more
    path = import_path(*filter(None, more.get("PYTHONPATH", "").split(os.pathsep)))
    return clean | ({"PYTHONPATH": path} if path else {})
