"""Measurement context: the machine, libraries and settings for which a measurement is valid."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata

from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.vendor import libraries, registry

# Instruction sets that change what XLA or a vendor library runs; the rest of a CPU's flags does not matter.
_RELEVANT = (
    "sse4_1 avx avx2 fma f16c avx_vnni avx_ne_convert avx512f avx512dq avx512bw avx512vl avx512_vnni avx512_bf16 "
    "avx512_fp16 amx_tile amx_bf16 amx_int8 amx_fp16"
).split()


@dataclass(frozen=True)
class Context:
    """The part of a measurement's key that describes machine, versions and settings."""

    cpu: str
    features: tuple[str, ...]
    threads: int
    libraries: tuple[str, ...]
    """`oneDNN 3.13.2 sycl`, or `oneDNN none`; SciPy's too, whose LAPACK is what stock XLA calls."""
    jaxlib: str
    abi: int
    settings: tuple[str, ...]
    """Settings of XLA's CPU compiler and of the libraries, from the environment."""

    @property
    def fingerprint(self) -> str:
        """A hash, equal for equal contexts in every process."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def describe(self) -> str:
        """One line for people."""
        return f"{self.cpu}, {self.threads} threads, {', '.join(self.libraries)}, jaxlib {self.jaxlib}"


def this_context() -> Context:
    """The context of this process; loads the vendor libraries."""
    machine = this_machine()
    return _context(machine.threads, tuple(_settings()))


@lru_cache(maxsize=8)
def _context(threads: int, settings: tuple[str, ...]) -> Context:
    machine = this_machine()
    features = tuple(feature for feature in _RELEVANT if feature in machine.features)
    return Context(
        machine.model, features, threads, tuple(libraries.identities()), _version("jaxlib"), _abi(), settings
    )


def _abi() -> int:
    try:
        return registry.abi()
    except LibraryError:
        return 0  # where the native part is missing nothing is measured


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _settings() -> list[str]:
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.startswith("--xla_cpu")]
    own = [f"{name}={value}" for name, value in libraries.settings().items()]
    return sorted(flags) + sorted(own)
