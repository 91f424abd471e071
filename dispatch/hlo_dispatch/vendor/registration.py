"""Kernel registration with JAX: afterwards executables with kernel calls can be compiled, or loaded from a cache.

This starts no backend and loads no vendor library: an executable loads its libraries (kernels/common/loader.h).
"""

# pyright: basic, reportPrivateImportUsage=false
# jax has no complete type hints, and exports none of what is private.
from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hlo_dispatch.pattern import load_tables, tables_or_default
from hlo_dispatch.vendor import kernels, users_kernels

_registered = False


def register_kernels(tables: Sequence[str | Path] | None = None) -> None:
    """Let this process load and run executables that were compiled with the pass elsewhere. Idempotent.

    `install()` and `HLO_DISPATCH=1` do it, too; this is for processes that only run what others compiled. No JAX
    backend is started, and a vendor library is loaded by the first executable that calls it.

    Args:
        tables: pattern tables of your own, where the executables call kernels of your own; None: those that
            HLO_DISPATCH_TABLES names.

    Raises:
        TableError: a table is wrong, or a library that it names cannot be loaded.
        LibraryError: the native part of hlo-dispatch cannot be imported.
    """
    named = tables_or_default(tables)
    register(users_kernels.open_handlers(load_tables(named)) if named else ())


def register(handlers: Iterable[users_kernels.Handler] = ()) -> None:
    """Register our kernels, and users' own that are loaded already.

    No lock is held, since registering takes JAX's own: what two threads register twice is the same as once.
    """
    import jax

    global _registered
    if not _registered:
        _registered = _register_ours()
    users_kernels.register(
        handlers,
        lambda target, function: jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(function), platform="cpu"),
    )


def _register_ours() -> bool:
    """Whether it could be done now."""
    import jax

    found = kernels.registrations()
    # XLA wants to know the types of the targets' states first, or JAX's backend does not start.
    for name, capsules in found.types.items():
        if not _register_type(name, capsules):
            return False
    for name, stages in found.targets.items():
        jax.ffi.register_ffi_target(name, stages, platform="cpu")
    return True


def _register_type(name: str, capsules: dict[str, Any]) -> bool:
    """Tell XLA of a type; False where this jax can only do it once a backend exists, and none does."""
    import jax
    from jax._src import xla_bridge
    from jax._src.lib import _jax

    # Until a backend exists jax keeps targets and types for later, and hands them over in the wrong order.
    direct = getattr(_jax, "register_custom_type", None)
    if direct is not None:
        direct(name, capsules)
        return True
    if not xla_bridge.backends_are_initialized():
        return False
    # A typed dictionary of jax's own.
    jax.ffi.register_ffi_type(name, capsules, platform="cpu")  # pyright: ignore[reportArgumentType]
    return True
