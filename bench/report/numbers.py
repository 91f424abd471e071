"""Numbers of the figures and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hlo_dispatch.bench.models.view import latency
from hlo_dispatch.bench.result_files import median

GENERATED = "generated code"


def duration(seconds: float) -> str:
    """Three digits, in seconds or milliseconds."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def speedups(entry: dict[str, Any]) -> dict[str, float]:
    """Side of a pattern → how many times faster than stock."""
    stock = median(entry["sides"].get("stock"))
    if not stock:
        return {}
    found = {side: median(entry["sides"].get(side)) for side in ("xla-onednn", "ours", "raw", "torch")}
    return {side: stock / seconds for side, seconds in found.items() if seconds}


def shown(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases that a figure has room for: the primary ones, or all where none is."""
    return [entry for entry in entries if "primary" in entry["tags"]] or list(entries)


def points(entries: Iterable[dict[str, Any]]) -> list[tuple[str, str, float, float]]:
    """(side, element type, FLOP per byte, FLOP/s) of every kernel, stock and ours."""
    found: list[tuple[str, str, float, float]] = []
    for entry in entries:
        for side in ("stock", "ours"):
            seconds = median(entry["sides"].get(side))
            if seconds and entry.get("kernels"):
                found.append((side, entry["dtype"], entry["work"] / entry["bytes"], entry["work"] / seconds))
    return found


def latencies(entry: dict[str, Any]) -> dict[str, float]:
    """Peer → seconds."""
    found = {peer: latency(records) for peer, records in entry["peers"].items()}
    return {peer: seconds for peer, seconds in found.items() if seconds}


def breakdown(entry: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """(stock, dispatched): what each kernel's regions take of a run, and the rest; seconds."""
    stock: dict[str, float] = defaultdict(float)
    dispatched: dict[str, float] = defaultdict(float)
    for region in entry["regions"]:
        if region["kernel"]:
            stock[region["kernel"]] += region["stock"]
            dispatched[region["kernel"]] += region["dispatched"]
    stock[GENERATED] = max(0.0, entry["stock_instructions"] - sum(stock.values()))
    dispatched[GENERATED] = sum(left["seconds"] for left in entry["left"])
    # Shares of the whole run: instructions at the same time count twice in their sum.
    return _scaled(stock, entry["stock"]), _scaled(dispatched, entry["dispatched"])


def _scaled(parts: dict[str, float], whole: float) -> dict[str, float]:
    total = sum(parts.values()) or 1.0
    return {name: seconds * whole / total for name, seconds in parts.items()}
