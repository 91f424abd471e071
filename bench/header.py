"""What a number was measured on: without it the number means nothing."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from hlo_dispatch import machine_facts
from hlo_dispatch.libraries import onednn


def header() -> list[str]:
    """Machine, versions and the load, a line each."""
    present = machine_facts.flags()
    versions = [f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "keras", "flax") if _installed(name)]
    library = onednn()
    processors = f"{machine_facts.usable_processors()} usable processors"
    return [
        f"{machine_facts.processor()}, {processors}, load {os.getloadavg()[0]:.1f}",
        " ".join(flag for flag in machine_facts.RELEVANT_FLAGS if flag in present),
        f"Python {platform.python_version()}, {', '.join(versions)}",
        f"oneDNN {library.version} over {library.runtime}" if library else library.sentence,
    ]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
