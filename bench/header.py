"""Header of a result: the machine and the versions it was measured with."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from hlo_dispatch.errors import Unavailable
from hlo_dispatch.process.machine import relevant_features, this_machine
from hlo_dispatch.vendor.libraries import onednn


def header() -> list[str]:
    """Machine, versions and the load, a line each."""
    versions = [f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "keras", "flax") if _installed(name)]
    library = onednn()
    machine = this_machine()
    return [
        f"{machine.model}, {machine.threads} usable processors, load {os.getloadavg()[0]:.1f}",
        " ".join(relevant_features()),
        f"Python {platform.python_version()}, {', '.join(versions)}",
        library.sentence if isinstance(library, Unavailable) else f"oneDNN {library.version} over {library.threads}",
    ]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
