"""The environment of processes that tests start."""

from __future__ import annotations

import os

# The tests' own store, no measuring unless it is asked for (tests/conftest.py), the processor that is played.
_KEPT = ("HLO_DISPATCH_CACHE_DIR", "HLO_DISPATCH_MEASURE_SECONDS", "HLO_DISPATCH_MAX_CPU_ISA")
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


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what changes what hlo-dispatch does, and with `more`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HLO_DISPATCH") or name in _KEPT}
    # What runs in it may be large, and as slow as it is where LLVM does nothing (.ci/test).
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(_OPTIMIZATION)]
    return clean | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)} | more
