"""Results of whole models drawn for a terminal, and the numbers that a report needs of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hlo_dispatch.bench.models.catalogue import PEERS
from hlo_dispatch.bench.result_files import header_lines
from hlo_dispatch.report.terminal import make_table, row
from hlo_dispatch.report.wording import duration


def latency(records: Sequence[dict[str, Any]]) -> float | None:
    """Seconds: the median over the rounds of each round's median."""
    return statistics.median(statistics.median(record["samples"]) for record in records) if records else None


def spread(records: Sequence[dict[str, Any]]) -> float:
    """Half the distance between the slowest and the fastest round, as a fraction of the latency."""
    medians = [statistics.median(record["samples"]) for record in records]
    return (max(medians) - min(medians)) / 2 / statistics.median(medians)


def middle(records: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.median(record[key] for record in records)


def print_models(target: Console, header: dict[str, Any], entries: Sequence[dict[str, Any]]) -> None:
    """One row for each configuration and peer."""
    for line in header_lines(header):
        target.print(Text(line))
    target.print()
    table = make_table("model", "peer", "latency", "±", "ours is faster by", "compile", "first call", "peak memory")
    for column in table.columns[2:]:
        column.justify = "right"
    for entry in entries:
        ours = latency(entry["peers"].get("ours", []))
        for peer, records in entry["peers"].items():
            if not records:
                continue
            seconds = latency(records)
            assert seconds is not None
            ratio = f"{seconds / ours:.2f}x" if ours and peer != "ours" else ""
            times = [duration(middle(records, key)) for key in ("compile", "first_call")]
            memory = f"{middle(records, 'peak_memory') / 2**20:,.0f} MiB"
            row(table, entry["name"], PEERS[peer], duration(seconds), f"{spread(records):.0%}", ratio, *times, memory)
    target.print(table)
    for entry in entries:
        for peer, why in entry.get("failed", {}).items():
            target.print(Text(f"not measured: {entry['name']}, {PEERS[peer]}: {why}"))
    target.print(
        Text(
            "latency: median of the rounds' medians; ±: half the distance between the slowest and the fastest round. "
            "torch.compile compiles in its first call, if its cache on disk does not know the program. Peak memory "
            "counts from compiling on, weights included."
        )
    )
