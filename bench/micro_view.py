"""Results of single patterns drawn for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hlo_dispatch.bench.micro import overhead
from hlo_dispatch.bench.result_files import header_lines, median
from hlo_dispatch.report.terminal import make_table, row
from hlo_dispatch.report.wording import duration, plural

_COLUMNS = {
    "stock": "stock",
    "xla-onednn": "XLA's oneDNN",
    "ours": "ours",
    "always": "kernel always",
    "raw": "raw call",
    "torch": "torch",
}

_ANY_WIDTH = 1000  # what rich measures is never wider than what it may use


def print_micro(target: Console, header: dict[str, Any], entries: Sequence[dict[str, Any]]) -> None:
    """The table, what its columns mean, and what failed."""
    for line in header_lines(header):
        target.print(Text(line))
    target.print()
    sides = [side for side in _COLUMNS if any(side in entry["sides"] for entry in entries)]
    titles = [_COLUMNS[side] for side in sides]
    titles += ["GFLOP/s", "of peak", "of memory", "over stock", "overhead"]
    rows = {
        entry["name"]: [
            *(_time(entry, side) for side in sides), *shares(entry, header.get("peak")), _over_stock(entry),
            _overhead(entry),
        ]
        for entry in entries
    }  # fmt: skip
    _print_table(target, titles, rows)
    failed = [f"{entry['name']}: {name}: {why}" for entry in entries for name, why in entry["failed"].items()]
    for line in failed:
        target.print(Text(f"not measured: {line}"))
    target.print(
        Text(
            "ours: the default policy, which may leave a case to stock. GFLOP/s and shares of the measured peak are "
            "ours'; what fits into caches can exceed the memory's share. overhead: what one more call costs inside of "
            "an executable, less the raw call."
        )
    )


def _print_table(target: Console, titles: Sequence[str], rows: dict[str, list[str]]) -> None:
    """A row for each name; where that is too wide, a list for each."""
    table = make_table("name", *titles)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, cells in rows.items():
        row(table, name, *cells)
    if target.measure(table, options=target.options.update(width=_ANY_WIDTH)).maximum <= target.width:
        target.print(table)
        return
    for name, cells in rows.items():
        target.print(Text(name))
        for title, cell in zip(titles, cells, strict=True):
            if cell:
                target.print(Text(f"  {title:<14}{cell:>10}"))
        target.print()


def line(entry: dict[str, Any]) -> str:
    """One measured case in one line."""
    times = [f"{_COLUMNS[side]} {_time(entry, side)}" for side in _COLUMNS if side in entry["sides"]]
    ratio = _over_stock(entry)
    return ", ".join(times) + (f": {ratio} over stock" if ratio else "")


def shares(entry: dict[str, Any], peak: dict[str, Any] | None) -> tuple[str, str, str]:
    """(GFLOP/s, share of the arithmetic peak, share of the memory's), empty where unknown."""
    seconds = median(entry["sides"].get("ours")) or median(entry["sides"].get("always"))
    if not seconds:
        return "", "", ""
    rate = entry["work"] / seconds
    if peak is None:
        return f"{rate / 1e9:.1f}", "", ""
    best = peak["arithmetic"].get({"c64": "f32"}.get(entry["dtype"], entry["dtype"]))
    arithmetic = f"{rate / best:.0%}" if best else ""
    return f"{rate / 1e9:.1f}", arithmetic, f"{entry['bytes'] / seconds / peak['bandwidth']:.0%}"


def _time(entry: dict[str, Any], side: str) -> str:
    seconds = median(entry["sides"].get(side))
    return "" if seconds is None else duration(seconds)


def _over_stock(entry: dict[str, Any]) -> str:
    stock, ours = median(entry["sides"].get("stock")), median(entry["sides"].get("ours"))
    return f"{stock / ours:.2f}x" if stock and ours else ""


def _overhead(entry: dict[str, Any]) -> str:
    found = overhead(entry)
    return "" if found is None else f"{found * 1e6:.1f} µs"


def print_cases(target: Console, cases: Sequence[Any]) -> None:
    """The list of cases."""
    table = make_table("name", "from", "tags")
    for case in cases:
        row(table, case.name, case.model, " ".join(case.tags))
    target.print(table)
    target.print(Text(plural(len(cases), "case")))
