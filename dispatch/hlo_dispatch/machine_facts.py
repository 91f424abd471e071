"""What /proc and the scheduler say about this machine, for headers and the doctor."""

from __future__ import annotations

import os
from pathlib import Path

RELEVANT_FLAGS = (
    *("avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
)
"""The instruction sets that change which kernels a vendor library picks."""


def processor() -> str:
    """The processor's name, as the kernel knows it."""
    return _first("model name") or "unknown processor"


def flags() -> frozenset[str]:
    """All feature flags of the first processor."""
    return frozenset(_first("flags").split())


def usable_processors() -> int:
    """How many processors this process may run on (containers and taskset included)."""
    return len(os.sched_getaffinity(0))


def physical_cores() -> int:
    """Cores on the machine, hyper-threads counted once; 0 if nobody says."""
    pairs, package = set(), "0"
    for line in _lines():
        name, _, value = line.partition(":")
        if name.strip() == "physical id":
            package = value.strip()
        elif name.strip() == "core id":
            pairs.add((package, value.strip()))
    return len(pairs)


def _first(name: str) -> str:
    for line in _lines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
