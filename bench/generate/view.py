"""Tables of generation: times and memory of each way and form, their spread over forms, and time by kind."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hlo_dispatch.bench.kinds_view import kinds_content
from hlo_dispatch.report.terminal import make_table, print_content, row


def print_generation(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    """The tables, and a line for each way: how far its forms are apart."""
    good = [entry for entry in entries if "problem" not in entry]
    if good:
        _print_times(target, good)
        for way in dict.fromkeys(entry["way"] for entry in good):
            _print_spread(target, [entry for entry in good if entry["way"] == way])
        target.print()
        _print_memory(target, good)
    profiled = [entry for entry in good if "profile" in entry]
    if profiled:
        target.print()
        names = {f"{entry['dtype']} {entry['way']} {entry['form']}": entry["profile"] for entry in profiled}
        print_content(target, kinds_content(names))
    for entry in entries:
        if "problem" in entry:
            target.print(Text(f"{entry['name']}: not measured: {entry['problem']}"))


def _print_times(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    measured = list(entries[0]["samples"])
    table = make_table("way", "form", *(f"{name}, ms" for name in measured))
    for column in table.columns[2:]:
        column.justify = "right"
    for entry in entries:
        times = [_least_and_median(entry["samples"][name]) for name in measured]
        row(table, f"{entry['dtype']} {entry['way']}", entry["form"], *times)
    target.print(table)
    target.print(Text("Times are the least, and the median in parentheses."))


def _print_memory(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    table = make_table(
        "way", "form", "first token, s", "weights, MB", "resident, MB", "a token adds, MB", "same tokens"
    )
    for column in table.columns[2:]:
        column.justify = "right"
    for entry in entries:
        like = next(e for e in entries if e["way"] == entry["way"])["tokens"]
        same = sum(a == b for a, b in zip(entry["tokens"], like, strict=True))
        megabytes = (entry["weights"], entry["resident"], entry["peak"] - entry["resident"])
        row(
            table, f"{entry['dtype']} {entry['way']}", entry["form"], f"{entry['first']:.1f}",
            *(f"{count / 1e6:,.0f}" for count in megabytes), f"{same} of {len(like)}",
        )  # fmt: skip
    target.print(table)
    target.print(
        Text(
            "The first token's time is that of compiling, of preprocessing weights and of a prefill. A process has "
            "the resident memory between tokens, and at most what a token adds during one; the cache is donated."
        )
    )


def _least_and_median(samples: Sequence[float]) -> str:
    return f"{1e3 * min(samples):.2f} ({1e3 * statistics.median(samples):.2f})"


def _print_spread(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    """The slowest form over the fastest, and the larger capacities over the first."""
    first = entries[0]
    tokens = [name for name in first["samples"] if name.startswith("token")]
    said: list[str] = []
    if len(entries) > 1:
        leasts = [min(entry["samples"][tokens[0]]) for entry in entries]
        said.append(f"the slowest form takes {max(leasts) / min(leasts):.2f}x of the fastest")
    for name in tokens:
        if " of " in name:
            ratios = [min(e["samples"][name]) / min(e["samples"][tokens[0]]) for e in entries]
            said.append(f"capacity {name.rpartition(' ')[2]} {', '.join(f'{ratio:.2f}x' for ratio in ratios)}")
    if said:
        target.print(Text(f"{first['dtype']} {first['way']}, {tokens[0]}: {'; '.join(said)}"))
