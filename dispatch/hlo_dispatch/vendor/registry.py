"""Kernel registry: target, library and properties of each kernel, registered in C++ (kernels/common/registry.h)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from hlo_dispatch.process.native import native

_FIELDS = {"joined_by": "grouped_by", "packed_by": "prepacked_by"}
"""Name of a property in C++ → field of `Kernel`, where they differ."""


@dataclass(frozen=True)
class Kernel:
    """A kernel family that patterns can be bound to."""

    name: str
    """Its name in tables and reports."""
    target: str
    """The custom-call's target."""
    library: str
    """Name of the library that computes it (`libraries.py`)."""
    instructions: str
    """Required instruction set, such as AVX-512; empty: none."""
    runs_alone: bool
    """Whether it can be called without XLA, for benchmarks."""
    prepacked_by: str
    """The kernel that prepacks its weights for the attribute weights_format="packed" (prepacking.py), or empty."""
    grouped_by: str
    """The group kernel of its calls (passes/call_groups/), or empty."""
    routines: tuple[str, ...]
    """The routines of BLAS and LAPACK that it calls, without the letter of the element type."""
    only_copies: bool
    """Whether it only copies, so that every implementation of it is fast."""
    may_write_over_source: bool
    """Whether, in a call group, its result may reuse the buffer of its first operand, if their layouts are the same."""


@lru_cache(maxsize=1)
def kernels() -> Mapping[str, Kernel]:
    """Every kernel by its name, in order.

    Raises:
        LibraryError: the native part cannot be imported; so do the others.
    """
    entries: list[dict[str, Any]] = _native_registry()["kernels"]
    made = [Kernel(**{_FIELDS.get(name, name): value for name, value in entry.items()}) for entry in entries]
    return MappingProxyType({kernel.name: kernel for kernel in made})


@lru_cache(maxsize=1)
def abi() -> int:
    """Version of the attributes' meaning, which every custom-call carries."""
    return _native_registry()["abi"]


def own_version() -> str:
    """Version of our own code, which counts up when results or speed of any of it change."""
    return _native_registry()["own_version"]


def _native_registry() -> dict[str, Any]:
    return native().registry()
