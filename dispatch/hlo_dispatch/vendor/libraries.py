"""Vendor libraries: found and loaded at the first use, never at import.

A library answers with a :class:`Library` that is loaded and usable in this process, or with an :class:`Unavailable`
whose sentence says why not and what to do; nothing here raises. Each library has a file with its description, which
the doctor command and the keys of measurements and of JAX's cache read.
"""

from __future__ import annotations

import os
import threading
from importlib import metadata

from hlo_dispatch.errors import LibraryError, Unavailable
from hlo_dispatch.vendor.library import Description, Library
from hlo_dispatch.vendor.onednn import ONEDNN
from hlo_dispatch.vendor.onemkl import ONEMKL
from hlo_dispatch.vendor.own_code import OWN
from hlo_dispatch.vendor.scipy_lapack import SCIPY
from hlo_dispatch.vendor.svml import SVML

# The order is part of the keys of measurements: a different one invalidates them all.
DESCRIPTIONS: dict[str, Description] = {library.name: library for library in (OWN, ONEDNN, ONEMKL, SCIPY, SVML)}


def loaded(name: str) -> Library | Unavailable:
    """The library of this name, found and loaded at the first call."""
    if (known := _answers.get(name)) is not None:
        return known
    with _lock:
        if name not in _answers:
            try:
                _answers[name] = DESCRIPTIONS[name].load()
            except LibraryError as error:
                _answers[name] = Unavailable(name, str(error))
        return _answers[name]


def leave_out(name: str, why: str) -> None:
    """Have this process do without a library that is there, for programs of a process that lacks it."""
    with _lock:
        _answers[name] = Unavailable(name, why)
        _left_out.add(name)


def onednn() -> Library | Unavailable:
    """The process's oneDNN."""
    return loaded(ONEDNN.name)


def mkl() -> Library | Unavailable:
    """The process's oneMKL."""
    return loaded(ONEMKL.name)


def scipy() -> Library | Unavailable:
    """The BLAS and LAPACK inside SciPy."""
    return loaded(SCIPY.name)


def svml() -> Library | Unavailable:
    """The process's SVML."""
    return loaded(SVML.name)


def own() -> Library | Unavailable:
    """Our own code."""
    return loaded(OWN.name)


def survey() -> dict[str, Library | Unavailable]:
    """Every library that may be missing, by name."""
    return {name: loaded(name) for name, library in DESCRIPTIONS.items() if library.is_separate}


def identities() -> list[str]:
    """The libraries' part of a measurement's key: versions and threading runtimes."""
    # SVML's version is in the attributes of each call of it, which are in the key, too.
    return [_identity(library) for library in DESCRIPTIONS.values() if library is not SVML]


def settings() -> dict[str, str]:
    """Every environment variable that changes what a library runs, or on which threads."""
    prefixes = tuple(prefix for library in DESCRIPTIONS.values() for prefix in library.settings)
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def _identity(library: Description) -> str:
    if library.distribution and library.name not in _left_out:
        return f"{library.name} {_installed_version(library.distribution)}"
    found = loaded(library.name)
    identity = "none" if isinstance(found, Unavailable) else f"{found.version} {found.threads}"
    return f"{library.name} {identity}"


def _installed_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"


_answers: dict[str, Library | Unavailable] = {}
_left_out: set[str] = set()
_lock = threading.RLock()
# A child that is forked while a library is being loaded would find half of it, and a locked lock.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
