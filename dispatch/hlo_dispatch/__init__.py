"""hlo-dispatch: vendor kernels under XLA:CPU, without changing the program.

The public API. Attributes are loaded lazily: importing this package loads neither JAX nor a vendor library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hlo_dispatch.errors import (
    FreezeError,
    HloDispatchError,
    LibraryError,
    ModuleError,
    PolicyError,
    Refusal,
    TableError,
    Unavailable,
)

if TYPE_CHECKING:
    from hlo_dispatch.api import Rewritten, rewrite
    from hlo_dispatch.automatic_freezing.jit import jit
    from hlo_dispatch.bench.time_by_kind import TimeByKind, profile
    from hlo_dispatch.cli.explain_page import write_page
    from hlo_dispatch.freezing.callable import Frozen, freeze
    from hlo_dispatch.freezing.loading import Loaded, load
    from hlo_dispatch.freezing.report import FreezeReport
    from hlo_dispatch.jax_plugin.explaining import explain
    from hlo_dispatch.jax_plugin.hook import enabled, install, installed, uninstall
    from hlo_dispatch.jax_plugin.optimizing import optimize
    from hlo_dispatch.jax_plugin.record import Statistics, reports, statistics
    from hlo_dispatch.jax_plugin.tuning import tune
    from hlo_dispatch.pattern import load_tables
    from hlo_dispatch.report import Region, Report
    from hlo_dispatch.vendor.registration import register_kernels

__version__ = "0.1.0"

_WHERE = {
    "FreezeReport": "freezing.report",
    "Frozen": "freezing.callable",
    "Loaded": "freezing.loading",
    "Region": "report",
    "Report": "report",
    "Rewritten": "api",
    "Statistics": "jax_plugin.record",
    "TimeByKind": "bench.time_by_kind",
    "enabled": "jax_plugin.hook",
    "explain": "jax_plugin.explaining",
    "freeze": "freezing.callable",
    "install": "jax_plugin.hook",
    "installed": "jax_plugin.hook",
    "jit": "automatic_freezing.jit",
    "load": "freezing.loading",
    "load_tables": "pattern",
    "optimize": "jax_plugin.optimizing",
    "profile": "bench.time_by_kind",
    "register_kernels": "vendor.registration",
    "reports": "jax_plugin.record",
    "rewrite": "api",
    "statistics": "jax_plugin.record",
    "tune": "jax_plugin.tuning",
    "uninstall": "jax_plugin.hook",
    "write_page": "cli.explain_page",
}

__all__ = [
    "FreezeError",
    "FreezeReport",
    "Frozen",
    "HloDispatchError",
    "LibraryError",
    "Loaded",
    "ModuleError",
    "PolicyError",
    "Refusal",
    "Region",
    "Report",
    "Rewritten",
    "Statistics",
    "TableError",
    "TimeByKind",
    "Unavailable",
    "enabled",
    "explain",
    "freeze",
    "install",
    "installed",
    "jit",
    "load",
    "load_tables",
    "optimize",
    "profile",
    "register_kernels",
    "reports",
    "rewrite",
    "statistics",
    "tune",
    "uninstall",
    "write_page",
]


def __getattr__(name: str):
    if name == "kernels":
        return import_module("hlo_dispatch.kernels")
    if name in _WHERE:
        return getattr(import_module(f"hlo_dispatch.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'hlo_dispatch' has no attribute {name!r}")
