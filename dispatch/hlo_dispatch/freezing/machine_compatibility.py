"""Machine compatibility of saved programs: versions, threads, instruction sets and libraries that must match."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import jax

import hlo_dispatch
from hlo_dispatch.ir.module import Module
from hlo_dispatch.process.machine import this_machine
from hlo_dispatch.selection.context import this_context
from hlo_dispatch.vendor import libraries, registry
from hlo_dispatch.vendor.library import Library


def called_libraries(modules: Iterable[Module]) -> list[str]:
    """Libraries that the custom-calls of these modules need."""
    needs = {kernel.target: kernel.library for kernel in registry.kernels().values()}
    called = {target for module in modules for target in module.custom_call_targets}
    return sorted({library for target, library in needs.items() if target in called})


def what_it_needs(names: Iterable[str]) -> dict[str, Any]:
    """Requirements of saved programs, as this process meets them; `names`: the libraries that are called."""
    context = this_context()
    return {
        "hlo-dispatch": hlo_dispatch.__version__,
        "jaxlib": context.jaxlib,
        "kernels": f"{context.abi}, {registry.own_version()}",
        "threads": context.threads,
        "processor": list(context.features),
        "libraries": {name: _identity(name) for name in names},
    }


def differences(needed: dict[str, Any]) -> list[str]:
    """Requirements that this process does not meet, each in a few words; loads the libraries."""
    return list(_differences(needed, what_it_needs(needed["libraries"])))


def executable_key() -> str:
    """Identifies what XLA's code depends on besides the module: its version, its flags, and the whole processor."""
    flags = sorted(flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.startswith("--xla_"))
    client = jax.local_devices(backend="cpu")[0].client
    parts = (this_context().fingerprint, client.platform_version, *flags, *sorted(this_machine().features))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _differences(needed: dict[str, Any], there: dict[str, Any]) -> Iterator[str]:
    for name in ("hlo-dispatch", "jaxlib", "kernels", "threads"):
        if needed[name] != there[name]:
            yield f"{name} {needed[name]}, here {there[name]}"
    wanted, found = set(needed["processor"]), set(there["processor"])
    if wanted - found:
        yield f"a processor with {' '.join(sorted(wanted - found))}, which this one has not"
    if found - wanted:
        yield f"a processor without {' '.join(sorted(found - wanted))}, which this one has"
    for name, identity in needed["libraries"].items():
        if identity != there["libraries"][name]:
            yield f"{name} {identity}, here {there['libraries'][name]}"


def _identity(name: str) -> str:
    library = libraries.loaded(name) if name in libraries.DESCRIPTIONS else None
    return f"{library.version} over {library.threads}" if isinstance(library, Library) else "none"
