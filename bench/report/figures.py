"""The figures, drawn with matplotlib; the page takes them as SVG, bench/results/README.md as PNG."""

# pyright: basic, reportMissingImports=false
# matplotlib is not there everywhere.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from hlo_dispatch.bench.models.catalogue import PEERS
from hlo_dispatch.bench.report import numbers

INK, GRID = "#1f2933", "#d8dee6"
COLORS = {
    "stock": "#8a94a3", "ours": "#0b6e99", "always": "#58a6c7", "xla-onednn": "#e08e2b", "raw": "#2f9e6e",
    "ours-auto": "#4f9a78", "ours-frozen": "#1d6b45", "torch": "#c9533d", "torch-compile": "#c9533d",
    "torch-frozen": "#e39b8c", "openvino": "#7a5ea8",
}  # fmt: skip
SIDES = {"xla-onednn": "XLA's oneDNN", "ours": "ours", "raw": "raw library call", "torch": "PyTorch, eager"}
_KERNELS = ("#0b6e99", "#2f9e6e", "#e08e2b", "#7a5ea8", "#c9533d", "#58a6c7", "#b8860b")
_STYLE = {
    "font.size": 9, "axes.edgecolor": GRID, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
}  # fmt: skip


def draw(gathered: Any) -> dict[str, Figure]:
    """Name → figure, of everything that was measured."""
    entries, header = gathered.entries, gathered.header
    with plt.rc_context(_STYLE):
        found: dict[str, Figure] = {}
        if entries.get("patterns"):
            found["patterns"] = patterns(entries["patterns"])
            if "peak" in header:
                found["roofline"] = roofline(entries["patterns"], header["peak"])
        if entries.get("models"):
            found["models"] = models(entries["models"])
        if entries.get("profiles"):
            found["breakdown"] = breakdown(entries["profiles"])
        return found


def patterns(entries: Sequence[dict[str, Any]]) -> Figure:
    """Figure of each side's speedup over stock, on a logarithmic axis."""
    rows = [(entry, numbers.speedups(entry)) for entry in numbers.shown(entries)]
    rows = [(entry, found) for entry, found in rows if found]
    sides = [side for side in SIDES if any(side in found for _, found in rows)]
    figure, axes = plt.subplots(figsize=(9, 1.0 + 0.125 * (len(sides) + 1) * len(rows)), layout="constrained")
    for place, (_, found) in enumerate(rows):
        for number, side in enumerate(sides):
            if side in found:
                y = place + (number - (len(sides) - 1) / 2) * 0.8 / len(sides)
                axes.barh(y, found[side] - 1, 0.75 / len(sides), left=1, color=COLORS[side])
                align = "left" if found[side] >= 1 else "right"
                axes.annotate(f" {found[side]:.2f} ", (found[side], y), va="center", ha=align, fontsize=6)
    _ratio_axis(axes, [value for _, found in rows for value in found.values()])
    axes.set_yticks(range(len(rows)), [_label(entry) for entry, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("times faster than stock XLA")
    _legend(figure, {SIDES[side]: COLORS[side] for side in sides})
    return figure


def roofline(entries: Sequence[dict[str, Any]], peak: dict[str, Any]) -> Figure:
    """Every kernel that can be dispatched, stock and ours, under the measured roofs."""
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    found = numbers.points(entries)
    intensities = [point[2] for point in found] or [1.0]
    low, high = min(intensities) / 2, max(*intensities, 200.0) * 2
    colors = {"f32": "#0b6e99", "bf16": "#e08e2b", "f16": "#2f9e6e", "f64": "#7a5ea8", "c64": "#c9533d"}
    dtypes = [dtype for dtype in colors if any(point[1] == dtype for point in found)]
    for dtype in dtypes:
        best = peak["arithmetic"].get(dtype)
        if best:
            knee = best / peak["bandwidth"]
            xs = [low, max(low, knee), high]
            axes.plot(xs, [min(best, peak["bandwidth"] * x) / 1e9 for x in xs], color=colors[dtype], linewidth=1)
            axes.annotate(
                f"{dtype} {best / 1e9:.0f} GFLOP/s", (high, best / 1e9), ha="right", va="bottom", color=colors[dtype]
            )
        for side in ("stock", "ours"):
            own = [point for point in found if point[0] == side and point[1] == dtype]
            axes.scatter(
                [point[2] for point in own],
                [point[3] / 1e9 for point in own],
                s=22,
                facecolors=colors[dtype] if side == "ours" else "none",
                edgecolors=colors[dtype],
                linewidths=0.9,
                label=f"{dtype}, {side}",
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(color=GRID, linewidth=0.5)
    axes.set_xlabel("floating-point operations for each byte that has to move")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(
        f"memory {peak['bandwidth'] / 1e9:.1f} GB/s; what is in a cache can be above its roof", fontsize=9, loc="left"
    )
    axes.legend(frameon=False, ncols=2, loc="lower right")
    return figure


def models(entries: Sequence[dict[str, Any]]) -> Figure:
    """Each peer's latency against stock, a panel for each element type and batch."""
    panels = list(dict.fromkeys((entry["dtype"], entry["batch"]) for entry in entries))
    peers = [peer for peer in PEERS if peer != "stock" and any(entry["peers"].get(peer) for entry in entries)]
    sizes = [sum((entry["dtype"], entry["batch"]) == panel for entry in entries) for panel in panels]
    height = 1.2 + 0.2 * (len(peers) + 1) * sum(sizes) + 0.6 * len(panels)
    figure, grid = plt.subplots(
        len(panels), 1, figsize=(9, height), layout="constrained", squeeze=False, height_ratios=sizes
    )
    ratios = [r for entry in entries for r in _against_stock(entry).values()]
    for axes, (dtype, batch) in zip(grid[:, 0], panels, strict=True):
        own = [entry for entry in entries if (entry["dtype"], entry["batch"]) == (dtype, batch)]
        for place, entry in enumerate(own):
            seconds, against = numbers.latencies(entry), _against_stock(entry)
            for number, peer in enumerate(peers):
                if peer not in against:
                    continue
                y = place + (number - (len(peers) - 1) / 2) * 0.8 / len(peers)
                axes.barh(y, against[peer] - 1, 0.75 / len(peers), left=1, color=COLORS[peer])
                # On the free side of the axis where a bar goes to the left, not among the models' names.
                text = f" {numbers.duration(seconds[peer])}"
                axes.annotate(text, (max(1, against[peer]), y), va="center", fontsize=7)
        _ratio_axis(axes, ratios)
        axes.set_yticks(range(len(own)), [f"{e['model']}\nstock {_stock_ms(e)}" for e in own])
        axes.set_ylim(len(own) - 0.5, -0.5)
        axes.set_title(f"{dtype}, batch {batch}", loc="left", fontsize=10)
    grid[-1, 0].set_xlabel("times faster than stock XLA")
    _legend(figure, {PEERS[peer]: COLORS[peer] for peer in peers})
    return figure


def breakdown(entries: Sequence[dict[str, Any]]) -> Figure:
    """Figure of a run's time by kernel, stock and dispatched."""
    rows = [(entry["name"], side, parts) for entry in entries for side, parts in _both(entry)]
    kernels = list(dict.fromkeys(name for *_, parts in rows for name in parts if name != numbers.GENERATED))
    colors = {name: _KERNELS[number % len(_KERNELS)] for number, name in enumerate(kernels)}
    colors[numbers.GENERATED] = "#c3cad3"
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.32 * len(rows)), layout="constrained")
    for place, (_, _, parts) in enumerate(rows):
        left, y = 0.0, place + 0.5 * (place // 2)
        # Relative to stock: models of all sizes on one axis.
        whole = sum(rows[place // 2 * 2][2].values())
        for name in (*kernels, numbers.GENERATED):
            width = parts.get(name, 0.0) / whole
            axes.barh(y, width, 0.8, left=left, color=colors[name])
            left += width
        axes.annotate(f" {numbers.duration(sum(parts.values()))}", (left, y), va="center", fontsize=8)
    places = [place + 0.5 * (place // 2) for place in range(len(rows))]
    axes.set_yticks(places, [f"{name}, {side}" for name, side, _ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    axes.set_xlabel("of a stock run's time; before: the regions that each kernel takes over")
    _legend(figure, colors)
    return figure


def _both(entry: dict[str, Any]) -> tuple[tuple[str, dict[str, float]], ...]:
    stock, dispatched = numbers.breakdown(entry)
    return (("stock", stock), ("dispatched", dispatched))


def _against_stock(entry: dict[str, Any]) -> dict[str, float]:
    seconds = numbers.latencies(entry)
    if "stock" not in seconds:
        return {}
    return {peer: seconds["stock"] / value for peer, value in seconds.items() if peer != "stock"}


def _stock_ms(entry: dict[str, Any]) -> str:
    seconds = numbers.latencies(entry).get("stock")
    return numbers.duration(seconds) if seconds else "not measured"


def _ratio_axis(axes: Any, ratios: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.axvline(1, color=INK, linewidth=0.8)
    low, high = min([0.8, *ratios]) / 1.3, max([1.25, *ratios]) * 1.3
    axes.set_xlim(low, high)
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if low <= t <= high]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.grid(axis="x", color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)


def _label(entry: dict[str, Any]) -> str:
    order = ", channels first" if entry["layout"] == "channels-first" else ""
    return f"{entry['pattern']} {entry['dtype']}{order}\n{entry['model'] or entry['shape']}"


def _legend(figure: Figure, colors: dict[str, str]) -> None:
    patches = [matplotlib.patches.Patch(color=color, label=name) for name, color in colors.items()]
    figure.legend(handles=patches, loc="outside upper left", ncols=min(5, len(patches)), frameon=False)
