"""Run report document: JSON, HTML page and summary line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hlo_dispatch.jax_plugin.at_exit.accumulated_reports import AccumulatedReports, Totals
from hlo_dispatch.jax_plugin.at_exit.page import page
from hlo_dispatch.report.wording import duration, plural

FORMAT = "hlo-dispatch run 1"


def document(accumulated: AccumulatedReports, statistics: Mapping[str, Any], *, is_page: bool) -> bytes:
    """The run report, as JSON or as an HTML page."""
    about = {
        "format": FORMAT,
        "process": os.getpid(),
        "arguments": sys.argv,
        "summary": summary(accumulated.totals, statistics.get("frozen", 0)),
        "totals": asdict(accumulated.totals),
        "statistics": dict(statistics),
        "left_out": accumulated.left_out,
        "failures": accumulated.failures,
    }
    if is_page:
        return page(about, accumulated.reports()).encode()
    return (json.dumps(about | {"modules": list(accumulated.reports())}, indent=1, default=str) + "\n").encode()


def summary(totals: Totals, frozen: int = 0) -> str:
    """`3 modules, 12 of 20 regions dispatched, 5.2 s in the pass, 3.4 ms saved by running each once`.

    Args:
        frozen: number of functions that run with frozen arguments.
    """
    parts = [
        plural(totals.modules, "module"),
        f"{totals.dispatched:,} of {plural(totals.regions, 'region')} dispatched",
        f"{duration(totals.seconds)} in the pass",
    ]
    if totals.saved is not None:
        parts.append(f"{duration(totals.saved)} saved by running each once")
    if frozen:
        parts.append(f"{plural(frozen, 'function')} with frozen arguments")
    if totals.failures:
        parts.append(f"{plural(totals.failures, 'module')} that the pass failed on")
    return ", ".join(parts)
