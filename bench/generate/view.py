"""Tables of generation: times, their ratios to the best peer, memory, spread over forms, and time by kind."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hlo_dispatch.bench.generate.peers import PEERS
from hlo_dispatch.bench.generate.plan import calls
from hlo_dispatch.bench.kinds_view import kinds_content
from hlo_dispatch.report.terminal import make_table, print_content, row


def print_generation(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    """The tables, and a line for each way: how far its forms are apart."""
    good = [entry for entry in entries if "problem" not in entry]
    if good:
        _print_times(target, good)
        for way in dict.fromkeys(entry["way"] for entry in good if entry["way"] not in PEERS):
            _print_spread(target, [entry for entry in good if entry["way"] == way])
        target.print()
        _print_memory(target, [entry for entry in good if "cut" not in entry])
    profiled = [entry for entry in good if "profile" in entry]
    if profiled:
        target.print()
        names = {f"{entry['dtype']} {entry['way']} {entry['form']}": entry["profile"] for entry in profiled}
        print_content(target, kinds_content(names))
    for entry in entries:
        if "problem" not in entry and "cut" in entry:
            target.print(Text(f"{entry['name']}: interrupted before all its turns were over"))
        if "problem" in entry:
            target.print(Text(f"{entry['name']}: not measured: {entry['problem']}"))


def _print_times(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    measured = list(max((entry["samples"] for entry in entries), key=len))
    table = make_table("weights", "way", "form", *(f"{name}, ms" for name in measured))
    for column in table.columns[3:]:
        column.justify = "right"
    for entry in entries:
        rivals = _rivals(entries, entry)
        row(table, *_titles(entry), *(_time(entry, name, rivals) for name in measured))
    target.print(table)
    said = "Times are the least, and the median in parentheses."
    if any(entry["way"] in PEERS for entry in entries):
        said += (
            " Behind them the speed over that of the best peer with such weights, the one with the least median: the"
            " median over turns of ratios of medians."
        )
    target.print(Text(said))


def _titles(entry: dict[str, Any]) -> tuple[str, str, str]:
    way = entry["way"] if entry["way"] in PEERS else f"{entry['dtype']} {entry['way']}"
    return entry["precision"], way, entry["form"]


def _rivals(entries: Sequence[dict[str, Any]], entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Peers with weights of the same precision."""
    if entry["way"] in PEERS:
        return []
    return [other for other in entries if other["way"] in PEERS and other["precision"] == entry["precision"]]


def _time(entry: dict[str, Any], name: str, rivals: Sequence[dict[str, Any]]) -> str:
    samples = entry["samples"].get(name)
    if not samples:
        return ""
    text = f"{1e3 * min(samples):.2f} ({1e3 * statistics.median(samples):.2f})"
    measured = [rival for rival in rivals if rival["samples"].get(name)]
    if measured:
        best = min(measured, key=lambda rival: statistics.median(rival["samples"][name]))
        text += f" {speed_over(entry, best, name):.2f}x"
    return text


def speed_over(entry: dict[str, Any], peer: dict[str, Any], name: str) -> float:
    """Speed over that of a peer which took turns with it."""
    # One of the two may have been interrupted a turn earlier.
    turns = zip(_turn_medians(entry, name), _turn_medians(peer, name), strict=False)
    return statistics.median(theirs / ours for ours, theirs in turns)


def _turn_medians(entry: dict[str, Any], name: str) -> list[float]:
    samples, each = entry["samples"][name], calls(name)
    return [statistics.median(samples[begin : begin + each]) for begin in range(0, len(samples), each)]


def _print_memory(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    if not entries:
        return
    table = make_table(
        "weights", "way", "form", "first token, s", "its peak, MB", "weights, MB", "cache, MB", "besides, MB",
        "resident, MB", "a token adds, MB", "same tokens",
    )  # fmt: skip
    for column in table.columns[3:]:
        column.justify = "right"
    for entry in entries:
        like = next(e for e in entries if e["precision"] == entry["precision"])["tokens"]
        same = sum(a == b for a, b in zip(entry["tokens"], like, strict=True))
        weights, cache, resident, peak = (entry[name] for name in ("weights", "cache", "resident", "peak"))
        besides = peak - entry["imports"] - weights - cache
        sizes = (entry["first_peak"], weights, cache, besides, resident, peak - resident)
        megabytes = (f"{count / 1e6:,.0f}" for count in sizes)
        row(table, *_titles(entry), f"{entry['first']:.1f}", *megabytes, f"{same} of {len(like)}")
    target.print(table)
    target.print(
        Text(
            "The first token's time is that of compiling, of preprocessing weights (of a peer, and of what was saved, "
            "of loading its file) and of a prefill; its peak is the largest memory of the process until then, above "
            "that of its imports. A process has the resident memory between tokens, and at most what a token adds "
            "during one; the cache is "
            "donated. Besides: what it has during a token beside its imports, its weights and one cache (a peer keeps "
            "that itself): activations, programs, and what was used to make them. Greedy tokens are compared with "
            "those of the first with such weights; libraries round integers differently."
        )
    )


def _print_spread(target: Console, entries: Sequence[dict[str, Any]]) -> None:
    """The slowest form over the fastest, and the larger capacities over the first."""
    first = entries[0]
    tokens = [name for name in first["samples"] if name.startswith("token")]
    # What was interrupted has no samples of some.
    tokens = [name for name in tokens if all(entry["samples"].get(name) for entry in entries)]
    if not tokens:
        return
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
