"""Kernel plans: queries a library for the implementation of one call; and the registrations for JAX.

A call is described by its attributes (a "spec"): a flat dict that later becomes the custom-call's typed
``backend_config``. Planning hands that dict to the same native code which reads the ``backend_config`` when an
executable is instantiated, so the planned implementation is the one that runs.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from hlo_dispatch.errors import LibraryError, Refusal, Unavailable
from hlo_dispatch.process.native import native
from hlo_dispatch.vendor import libraries, registry
from hlo_dispatch.vendor.library import Library
from hlo_dispatch.vendor.registry import Kernel


@dataclass(frozen=True)
class Planned:
    """A library's answer for a supported spec."""

    implementation: str
    """The library's own name for what it would run, such as brgconv:avx512_core."""
    scratch_bytes: int
    """Size of the scratch memory, the call's second result."""
    reorders_weights: bool = False
    """Whether every call copies its weights (or their gradient) between layouts, for a faster implementation."""
    packed_bytes: int = 0
    """Size of the prepacked weights, where the call asks for them; 0: no prepacking."""
    packed_layout: str = ""
    """Layout of the prepacked weights."""


@dataclass(frozen=True)
class Registrations:
    """What to register with ``jax.ffi`` once the backend exists: all the types first, then the targets."""

    types: dict[str, dict[str, Any]]
    """Name to the keyword capsules of ``jax.ffi.register_ffi_type``."""
    targets: dict[str, dict[str, Any]]
    """Name to the stage capsules of ``jax.ffi.register_ffi_target``."""


# Models repeat their layers, and compiling again repeats them all: plans are kept by content.
_plans: dict[tuple[Any, ...], Planned | Refusal] = {}
_prefetched: dict[tuple[Any, ...], int] = {}
"""Prefetched query → its number."""
_plans_lock = threading.Lock()
os.register_at_fork(before=_plans_lock.acquire, after_in_parent=_plans_lock.release, after_in_child=_plans_lock.release)
_MOST_PLANS = 20_000


def library(name: str) -> Library | Unavailable:
    """The library behind a kernel, loaded."""
    try:
        kernel = registry.kernels()[name]
    except LibraryError as error:
        return Unavailable(libraries.OWN.name, str(error))
    return libraries.loaded(kernel.library)


def plan(name: str, attributes: Mapping[str, Any], key: str = "") -> Planned | Refusal:
    """Query the implementation of exactly this call; a :class:`Refusal` where there is none or only a slow one.

    Args:
        key: the attributes as text, where the caller has it.
    """
    needed = library(name)
    if isinstance(needed, Unavailable):
        return Refusal("library-missing", needed.sentence)
    known = _plans.get(cache_key := (name, key or _frozen(attributes)))
    if known is None:
        with _plans_lock:
            number = _prefetched.pop(cache_key, None)
        known = _answer(registry.kernels()[name], dict(attributes), number)
        with _plans_lock:
            if len(_plans) >= _MOST_PLANS:
                _plans.clear()
            _plans[cache_key] = known
    return known


def prefetch(name: str, attributes: Mapping[str, Any], key: str = "") -> None:
    """Start the query of a later :func:`plan` in a native thread, without the GIL."""
    cache_key = (name, key or _frozen(attributes))
    if cache_key in _plans or isinstance(library(name), Unavailable):
        return
    _finish_at_exit()
    with _plans_lock:
        if cache_key not in _prefetched:
            _prefetched[cache_key] = native().ask(registry.kernels()[name].target, dict(attributes))


def warm_up() -> None:
    """Load the vendor library and create its engine now, so that the first compile does not pay for it."""
    if isinstance(library("onednn.matmul"), Unavailable):
        return
    vector = {"dims": [1, 1], "strides": [1, 1]}
    spec: dict[str, Any] = {"abi": registry.abi(), "library": "", "scratch": 0}
    for role in ("src", "weights", "dst"):
        spec |= {f"{role}_type": "f32"} | {f"{role}_{key}": value for key, value in vector.items()}
    plan("onednn.matmul", spec)


def registrations() -> Registrations:
    """Return the handlers and their state type; they can be registered whether or not a library is there.

    An executable that is loaded where its library is not has it loaded (`libraries.py`).

    Raises:
        LibraryError: the native part cannot be imported.
    """
    native().load_with(_load)
    found = native().registrations()
    return Registrations(found["types"], found["targets"])


def _load(name: str) -> str:
    """Load a library for an executable that calls it; returns the reason of a failure, else an empty string."""
    try:
        found = libraries.loaded(name)
    except Exception as error:  # the caller is XLA
        return f"{type(error).__name__}: {error}"
    return found.sentence if isinstance(found, Unavailable) else ""


@lru_cache(maxsize=1)
def _finish_at_exit() -> None:
    """Nothing may run in the vendor library while the process takes it down."""
    atexit.register(native().finish)


def _answer(kernel: Kernel, attributes: dict[str, Any], number: int | None) -> Planned | Refusal:
    """The library's answer; `number` is that of the prefetched query, if any."""
    try:
        answer = native().plan(kernel.target, attributes) if number is None else native().wait(number)
        implementation, *sizes = answer
    except NotImplementedError as error:
        return Refusal("kernel-unsupported", f"{kernel.name}: {error}")
    except ImportError as error:
        return Refusal("library-missing", str(error))
    # A composed implementation of oneDNN has names joined by +: one slow component makes it slow.
    # For a copy, oneDNN's simple implementation is the best one: it copies whole rows.
    slow = ("ref",) if kernel.only_copies else ("ref", "simple")
    if any(part.startswith(slow) for part in implementation.replace("+", ":").split(":")):
        return Refusal(
            "reference-kernel", f"{kernel.name}: {kernel.library} has only its slow {implementation} for this"
        )
    return Planned(implementation, *sizes)


def _frozen(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a hashable copy of a spec, order of keys included (a spec is written the same way every time)."""
    return tuple((name, _frozen_value(value)) for name, value in attributes.items())


def _frozen_value(value: Any) -> Any:
    if isinstance(value, str | int | float):
        return value
    return _frozen(cast(Mapping[str, Any], value)) if isinstance(value, Mapping) else tuple(value)
