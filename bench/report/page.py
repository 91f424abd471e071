"""The report as one page: figures, tables, and the machine it was measured on."""

# pyright: basic
from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hlo_dispatch.bench.micro import overhead
from hlo_dispatch.bench.micro_view import shares
from hlo_dispatch.bench.models.catalogue import PEERS
from hlo_dispatch.bench.models.diffusion import STEPS, image_latency
from hlo_dispatch.bench.models.view import middle, spread
from hlo_dispatch.bench.report import numbers
from hlo_dispatch.bench.report.gather import Gathered
from hlo_dispatch.bench.result_files import header_lines, median
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.module_files import write_atomically
from hlo_dispatch.report.wording import duration

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.5rem }
svg { max-width: 100%; height: auto }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 13px }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e4e8ee; white-space: nowrap }
th:first-child, td:first-child { text-align: left } th { position: sticky; top: 0; background: #fff }
.note { color: #5b6673; font-size: 13px }
"""
TITLES = {
    "models": ("Models", "Each peer in a process of its own, rounds in turns; medians of the rounds' medians."),
    "breakdown": ("Where the time goes", "Of one run, by the kernel that takes a region over; the rest is XLA's."),
    "patterns": (
        "Patterns",
        "Single patterns against their peers. Ours is the default policy, which may leave a case to stock; the raw "
        "call is the same primitive in a loop without JAX around it.",
    ),
    "roofline": ("Roofline", "Every pattern that a kernel can take; filled: ours, hollow: stock."),
}


class NoMatplotlib(HloDispatchError):
    """The figures need matplotlib."""


def write_report(gathered: Gathered, output: str, images: Path | None) -> list[str]:
    """Write the page and, where asked for, each figure as a PNG; the names of the files.

    Raises:
        NoMatplotlib.
    """
    try:
        from hlo_dispatch.bench.report import figures
    except ImportError as error:
        raise NoMatplotlib(
            f"the report's figures need {error.name}; get it with: pip install 'hlo-dispatch[bench]'"
        ) from error
    drawn = figures.draw(gathered)
    written = []
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        for name, figure in drawn.items():
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=150, facecolor="white")
            write_atomically(str(images / f"{name}.png"), content.getvalue())
            written.append(str(images / f"{name}.png"))
    svgs = {name: _svg(figure) for name, figure in drawn.items()}
    write_atomically(output, page(gathered, svgs).encode())
    return [output, *written]


def page(gathered: Gathered, svgs: dict[str, str]) -> str:
    """The page as HTML."""
    parts = ["<h1>hlo-dispatch: measured</h1>"]
    for kind, header in gathered.headers.items():
        if header is gathered.header or header["versions"] != gathered.header["versions"]:
            parts += [f"<p class=note>{'' if header is gathered.header else html.escape(kind) + ': '}"]
            parts += ["<br>".join(html.escape(line) for line in header_lines(header)), "</p>"]
    tables = {
        "models": _models_table(gathered.entries.get("models", [])),
        "patterns": _patterns_table(gathered.entries.get("patterns", []), gathered.header.get("peak")),
    }
    for name in TITLES:
        if name in svgs:
            title, sentence = TITLES[name]
            parts += [f"<h2>{title}</h2>", f"<p>{html.escape(sentence)}</p>", svgs[name]]
            parts += [tables[name]] if name in tables else []
        if name == "models":
            parts.append(_diffusion(gathered))
    body = "\n".join(parts)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>hlo-dispatch: measured</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style><body>\n{body}\n</body></html>\n"
    )


def _svg(figure: Any) -> str:
    content = io.StringIO()
    figure.savefig(content, format="svg", facecolor="white", metadata={"Date": None})
    text = content.getvalue()
    return text[text.index("<svg") :]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _models_table(entries: Sequence[dict[str, Any]]) -> str:
    rows = []
    for entry in entries:
        seconds = numbers.latencies(entry)
        for peer, records in entry["peers"].items():
            if records:
                times = [duration(middle(records, key)) for key in ("compile", "first_call")]
                over = f"{seconds[peer] / seconds['ours']:.2f}x" if "ours" in seconds and peer != "ours" else ""
                memory = f"{middle(records, 'peak_memory') / 2**20:,.0f} MiB"
                cells = (duration(seconds[peer]), f"±{spread(records):.0%}", over, *times, memory)
                rows.append((entry["name"], PEERS[peer], *cells))
        rows += [(entry["name"], PEERS[peer], f"not measured: {why}") for peer, why in entry.get("failed", {}).items()]
    columns = ("model", "peer", "latency", "spread", "ours is faster by", "compile", "first call", "peak memory")
    return _table(columns, rows)


def _patterns_table(entries: Sequence[dict[str, Any]], peak: dict[str, Any] | None) -> str:
    sides = ("stock", "xla-onednn", "ours", "always", "raw", "torch")
    rows = []
    for entry in entries:
        found = [median(entry["sides"].get(side)) for side in sides]
        more = overhead(entry)
        over = numbers.speedups(entry).get("ours")
        rows.append(
            (
                entry["name"],
                *("" if seconds is None else duration(seconds) for seconds in found),
                *shares(entry, peak),
                f"{over:.2f}x" if over else "",
                "" if more is None else f"{more * 1e6:.1f} µs",
                ", ".join(entry.get("implementations", [])),
                entry["model"],
            )
        )
    columns = ("pattern", "stock", "XLA's oneDNN", "ours", "kernel always", "raw call", "PyTorch", "GFLOP/s", "of peak")
    return _table((*columns, "of memory", "over stock", "overhead", "implementation", "from"), rows)


def _diffusion(gathered: Gathered) -> str:
    models = gathered.entries.get("models", [])
    rows = []
    for dtype in ("f32", "bf16"):
        for steps in STEPS:
            found = {peer: image_latency(models, peer, dtype, steps) for peer in PEERS}
            if any(found.values()):
                cells = [duration(seconds) if seconds else "" for seconds in found.values()]
                rows.append((f"{dtype}, {steps} steps, from its parts", *cells))
    for entry in gathered.entries.get("diffusion", []):
        sides = [entry["sides"].get(peer, {}).get("second_run") for peer in PEERS]
        rows.append((f"{entry['name']}, run", *(duration(seconds) if seconds else "" for seconds in sides)))
    if not rows:
        return ""
    return "<h2>Stable Diffusion 1.4, an image of 512²</h2>" + _table(("", *PEERS.values()), rows)
