"""Module collection: writes the modules that a program compiles to a directory, for `hlo-dispatch tune --program`.

A collecting process dispatches nothing, whatever the program installs: nothing is measured twice, and the program runs
as fast as stock. The directory also has everything else that measurements depend on: the installed tables, and the
settings of XLA and the libraries at the first module.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_dispatch.ir.module_files import write_atomically
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

VARIABLE = "HLO_DISPATCH_COLLECT"
_SETTINGS = "settings.json"
_VARIABLES = (
    "XLA_FLAGS",
    "ONEDNN_",
    "DNNL_",
    "MKL_",
    "OMP_",
    "TBB_",
    "KMP_",
    "OCL_CPU_",
    "DPCPP_CPU_",
    "HLO_DISPATCH_",
)
_NOT_SETTINGS = (VARIABLE, "HLO_DISPATCH_POLICY", "HLO_DISPATCH_REPORT", "HLO_DISPATCH_CACHE_DIR")
_lock = ForkSafeLock()
_seen: set[str] = set()


@dataclass(frozen=True)
class Collected:
    """A collected module and the installed users' tables."""

    module: bytes
    tables: tuple[str, ...]


def folder() -> Path | None:
    """The directory of this process's modules; None: it does not collect."""
    name = os.environ.get(VARIABLE, "")
    return Path(name) if name else None


def collect(target: Path, serialized: bytes, tables: Sequence[str]) -> None:
    """Write a module; equal ones of all processes once."""
    digest = hashlib.sha256(serialized + repr(tables).encode()).hexdigest()
    with _lock:
        if digest in _seen:
            return
        _seen.add(digest)
    # The program runs on without the directory: the tuning command has ended.
    with contextlib.suppress(OSError):
        _keep_settings(target)
        write_atomically(str(target / f"{digest}.json"), json.dumps(list(tables)).encode())
        write_atomically(str(target / f"{digest}.pb"), serialized)


def collected(target: Path) -> list[Collected]:
    """Read a directory's modules, the largest first."""
    found: list[Collected] = []
    for path in target.glob("*.pb"):
        tables = json.loads(path.with_suffix(".json").read_text())
        found.append(Collected(path.read_bytes(), tuple(tables)))
    return sorted(found, key=lambda one: -len(one.module))


def apply_settings(target: Path) -> None:
    """Set this process's environment to the program's settings that measurements depend on."""
    path = target / _SETTINGS
    if path.exists():
        settings = json.loads(path.read_text())
        for name in [name for name in os.environ if _is_setting(name) and name not in settings]:
            del os.environ[name]
        os.environ.update(settings)


def _keep_settings(target: Path) -> None:
    path = target / _SETTINGS
    if not path.exists():
        settings = {name: value for name, value in os.environ.items() if _is_setting(name)}
        write_atomically(str(path), json.dumps(settings).encode())


def _is_setting(name: str) -> bool:
    return name.startswith(_VARIABLES) and name not in _NOT_SETTINGS
