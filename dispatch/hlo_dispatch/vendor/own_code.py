"""Own kernels in the native library: linear algebra, and copies for oneDNN."""

from __future__ import annotations

from pathlib import Path

from hlo_dispatch.process.native import native
from hlo_dispatch.vendor import registry
from hlo_dispatch.vendor.library import Description, Library


def _load() -> Library:
    return Library(OWN.name, Path(native().library_path()), registry.own_version(), "XLA's threads")


OWN = Description("hlo-dispatch", _load, is_separate=False)
