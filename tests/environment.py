"""The environment of processes that tests start."""

from __future__ import annotations

import os

# The tests' own store, no measuring unless it is asked for (tests/conftest.py), the processor that is played.
_KEPT = ("HLO_DISPATCH_CACHE_DIR", "HLO_DISPATCH_MEASURE_SECONDS", "HLO_DISPATCH_MAX_CPU_ISA")


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what changes what hlo-dispatch does, and with `more`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HLO_DISPATCH") or name in _KEPT}
    return clean | {"JAX_PLATFORMS": "cpu"} | more
