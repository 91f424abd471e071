"""Tables for pages of the repository, generated from files of results that are kept there.

The page of results has them in full; the README has one small table, of ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlo_dispatch.bench.models.catalogue import MODELS, OURS, PEERS
from hlo_dispatch.bench.report import numbers
from hlo_dispatch.bench.report.gather import Gathered
from hlo_dispatch.bench.result_files import header_lines, median
from hlo_dispatch.errors import HloDispatchError

_NAMES = {"ours": "ours", "ours-auto": "auto", "ours-frozen": "frozen"}
_SIDES = {"stock": "stock", "xla-onednn": "XLA's oneDNN", "ours": "ours", "raw": "raw call", "torch": "PyTorch, eager"}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
"""Between these is what the commands write, on either page."""
_IN_README = ("resnet50", "mobilenetv2", "convnexttiny", "bert", "gpt2")
"""Models of the README's table."""
_README_COLUMNS = {"ours": "over {}", "ours-frozen": "frozen, over {}"}


class NoPlace(HloDispatchError):
    """The file has no place for the tables."""


def with_tables(text: str, gathered: Gathered) -> str:
    """The page of results with everything between the marks written anew.

    Raises:
        NoPlace: the marks are not there, once each and in order.
    """
    return _between_the_marks(text, tables(gathered))


def with_ratios(text: str, gathered: Gathered) -> str:
    """The README with what is between the marks written anew; as it is where no model was measured.

    Raises:
        NoPlace: the marks are not there, once each and in order.
    """
    entries = gathered.entries.get("models")
    return _between_the_marks(text, ratios(entries)) if entries else text


def _between_the_marks(text: str, written: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after:
        raise NoPlace(f"there is no single place between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{written}\n{END}{after}"


def tables(gathered: Gathered) -> str:
    """Markdown: the machine, the models, the patterns."""
    parts: list[str] = []
    shown: dict[str, Any] = {}
    for kind, table in (("models", _models), ("patterns", _primary_patterns)):
        if not gathered.entries.get(kind):
            continue
        # The same machine, but perhaps not the same day.
        if gathered.headers[kind] != shown:
            shown = gathered.headers[kind]
            parts.append("  \n".join(header_lines(shown)))
        parts.append(table(gathered.entries[kind]))
    return "\n\n".join(parts)


def _models(entries: Sequence[dict[str, Any]]) -> str:
    peers = [peer for peer in PEERS if any(entry["peers"].get(peer) for entry in entries)]
    own = [peer for peer in OURS if peer in peers]
    rows: list[list[str]] = []
    for entry in entries:
        seconds = numbers.latencies(entry)
        cells = [_ms(seconds.get(peer)) for peer in peers]
        name = f"{MODELS[entry['model']].title}, {entry['dtype']}, batch {entry['batch']}"
        rows.append([name, *cells, *(ratio for own in own for ratio in _over(entry, own))])
    over = [f"{_NAMES[own]} over {what}" for own in own for what in ("stock", "the best peer")]
    return _markdown(["milliseconds", *(PEERS[peer] for peer in peers), *over], rows)


def ratios(entries: Sequence[dict[str, Any]]) -> str:
    """Markdown: some models in f32 at batch 1, speedups over stock and over the best peer, one ratio a cell."""
    shown = [
        entry for entry in entries if entry["model"] in _IN_README and (entry["dtype"], entry["batch"]) == ("f32", 1)
    ]
    own = [peer for peer in OURS if any(entry["peers"].get(peer) for entry in shown)]
    columns = [_README_COLUMNS[peer].format(other) for peer in own for other in ("stock XLA", "the best peer")]
    rows = [[MODELS[entry["model"]].title, *(ratio for peer in own for ratio in _over(entry, peer))] for entry in shown]
    return _markdown(["f32, batch 1", *columns], rows)


def _primary_patterns(entries: Sequence[dict[str, Any]]) -> str:
    return _patterns(numbers.shown(entries))


def _patterns(entries: Sequence[dict[str, Any]]) -> str:
    sides = [side for side in _SIDES if any(side in entry["sides"] for entry in entries)]
    rows: list[list[str]] = []
    for entry in entries:
        times = [_us(median(entry["sides"].get(side))) for side in sides]
        over = numbers.speedups(entry).get("ours")
        name = f"`{entry['pattern']}` {entry['dtype']}, {entry['model'] or entry['shape']}"
        rows.append([name, *times, f"{over:.2f}x" if over else ""])
    return _markdown(["microseconds", *(_SIDES[side] for side in sides), "ours over stock"], rows)


def _over(entry: dict[str, Any], own: str = "ours") -> tuple[str, str]:
    """Speedups over stock and over the best of all peers; empty where unknown."""
    seconds = numbers.latencies(entry)
    best = min((value for peer, value in seconds.items() if peer not in OURS), default=None)
    ours = seconds.get(own)
    over = [f"{value / ours:.2f}x" if value and ours else "" for value in (seconds.get("stock"), best)]
    return over[0], over[1]


def _markdown(columns: list[str], rows: list[list[str]]) -> str:
    line = "|" + "---|" + "---:|" * (len(columns) - 1)
    return "\n".join(["| " + " | ".join(columns) + " |", line, *("| " + " | ".join(row) + " |" for row in rows)])


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.0f}" if seconds >= 1e-4 else f"{seconds * 1e6:.3g}"
