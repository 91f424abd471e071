"""Machine description: the CPU's features and threads that decisions depend on, as one value that tests can replace."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hlo_dispatch.errors import PolicyError

ISA_VARIABLE = "HLO_DISPATCH_MAX_CPU_ISA"
"""ISA cap for tests: limits the instruction sets to one of oneDNN's names; oneDNN itself reads ONEDNN_MAX_CPU_ISA."""

MOST_POOL_THREADS = 256
"""Maximum threads of XLA's CPU client."""

RELEVANT_FEATURES = (
    *("avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
)
"""Instruction sets that change a vendor library's choice of kernels."""

# ISA cap → prefixes of the CPU flags above it.
_ABOVE_BF16 = ("avx512_fp16", "amx", "avx10", "avx_")
_ABOVE_VNNI = ("avx512_bf16", *_ABOVE_BF16)
_FEATURES_ABOVE: dict[str, tuple[str, ...]] = {
    "AVX2": ("avx512", *_ABOVE_BF16),
    "AVX512_CORE": ("avx512_vnni", *_ABOVE_VNNI),
    "AVX512_CORE_VNNI": _ABOVE_VNNI,
    "AVX512_CORE_BF16": _ABOVE_BF16,
    "SSE41": ("avx", "fma", "f16c", "bmi", "vaes", "vpclmulqdq", "gfni", "amx"),
    "": (),
}


@dataclass(frozen=True)
class Machine:
    """A CPU: model, instruction sets, threads."""

    model: str
    """The CPU's model name."""
    features: frozenset[str]
    """Instruction set flags as Linux names them: "avx2", "avx512f", "avx512_bf16", "amx_tile" …; without those above
    the ISA cap HLO_DISPATCH_MAX_CPU_ISA."""
    threads: int
    """Threads of XLA's pool, by which the vendor libraries divide their work, too."""

    @property
    def has_bf16_arithmetic(self) -> bool:
        return not self.features.isdisjoint(("avx512_bf16", "amx_bf16", "avx_ne_convert"))

    @property
    def has_bf16_tiles(self) -> bool:
        """Whether matrices of bf16 are multiplied by units of their own, many times as fast as vectors."""
        return "amx_bf16" in self.features


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """The machine of this process, limited by the ISA cap.

    Raises PolicyError if HLO_DISPATCH_MAX_CPU_ISA is invalid.
    """
    beyond = _features_above_cap()
    model = "unknown"
    features: frozenset[str] = frozenset()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() == "flags":
                features = frozenset(flag for flag in value.split() if not flag.startswith(beyond))
                break
    except OSError:
        pass
    return Machine(model, features, pool_threads())


def relevant_features() -> list[str]:
    """The relevant instruction sets of this processor."""
    present = this_machine().features
    return [feature for feature in RELEVANT_FEATURES if feature in present]


def pool_threads() -> int:
    """Number of threads in the pool of XLA's CPU client, computed as XLA does (and kernels/common/pool_size.cc).

    Environment variables have precedence; otherwise it is the number of processors in the affinity mask. A CPU quota
    does not count.
    """
    for variable in ("PJRT_NPROC", "NPROC"):
        parsed = re.fullmatch(r"\s*([+-]?\d+)\s*", os.environ.get(variable, ""), re.ASCII)
        if parsed and -(2**31) <= int(parsed[1]) < 2**31:
            return min(max(int(parsed[1]), 1), MOST_POOL_THREADS)
    return min(len(os.sched_getaffinity(os.getpid())), MOST_POOL_THREADS)


def _features_above_cap() -> tuple[str, ...]:
    most = os.environ.get(ISA_VARIABLE, "")
    if most not in _FEATURES_ABOVE:
        valid = ", ".join(name for name in _FEATURES_ABOVE if name)
        raise PolicyError(f"{ISA_VARIABLE} is {most!r}; unset it, or say one of {valid}")
    return _FEATURES_ABOVE[most]
