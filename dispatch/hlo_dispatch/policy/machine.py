"""What decisions may depend on, as one frozen value, so that tests can pretend to be another machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """A CPU as the policy sees it."""

    model: str
    """The CPU's own name."""
    features: frozenset[str]
    """Instruction set flags as the kernel names them: "avx2", "avx512f", "avx512_bf16", "amx_tile" …"""
    threads: int
    """Threads that XLA and the vendor libraries may use."""

    @property
    def has_bf16_arithmetic(self) -> bool:
        return not self.features.isdisjoint(("avx512_bf16", "amx_bf16", "avx_ne_convert"))


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """The machine this process runs on."""
    model, features = "unknown", frozenset()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() == "flags":
                features = frozenset(value.split())
                break
    except OSError:
        pass
    return Machine(model, features, len(os.sched_getaffinity(0)))
