"""Tuning result of a module, as plain values, text and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hlo_dispatch.report import Report
from hlo_dispatch.report.content import TextTable
from hlo_dispatch.report.wording import duration, plural, summary
from hlo_dispatch.selection.measurements import STOCK


@dataclass(frozen=True)
class TunedRegion:
    """Tuning result of one region and its repetitions in the module."""

    count: int
    formula: str
    shape: str
    kernel: str
    chosen: str
    """The variant that won, or "stock"."""
    seconds: dict[str, float]
    """"stock" and each variant → median seconds of a call, with the loops around it."""
    gain: float
    """Seconds saved by a call; 0 where stock was chosen."""
    noise: float
    """Seconds: how uncertain the gain is."""
    differences: dict[str, float]
    """Variant → largest difference from the right result over its largest value."""
    refused: dict[str, str]
    """Variant → why it must not be used."""
    provisional: bool = False
    """Whether the machine was too busy to be sure: the cost model decides, and it is measured again another time."""


@dataclass(frozen=True)
class Tuned:
    """Tuning result of a module."""

    report: Report
    """The pass's report of the module with the new measurements."""
    regions: tuple[TunedRegion, ...]
    """Largest first."""
    seconds: float
    """Seconds of tuning."""
    unmeasurable: int = 0
    """Regions that cannot be run alone: the cost model decides."""
    unclear: int = 0
    """Regions where noise hid which is faster: the cost model decides."""
    failures: int = 0
    """Regions whose measurement failed: the cost model decides."""
    left: int = 0
    """Regions beyond the time limit."""
    reproducers: tuple[str, ...] = field(default=())
    """Sentences about refused wrong results and their reproducers."""

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON."""
        return asdict(self) | {"report": self.report.to_dict()}

    def __str__(self) -> str:
        from hlo_dispatch.report.terminal import text_of

        return text_of(tuned_content(self))

    def _repr_html_(self) -> str:
        from hlo_dispatch.report.html import html_of

        return html_of(tuned_content(self))


def tuned_content(tuned: Tuned, *, validate_only: bool = False) -> Iterator[TextTable | str]:
    """The table of regions, the wrong results, and two closing lines."""
    if tuned.regions:
        yield _validated(tuned.regions) if validate_only else _table(tuned.regions)
    for sentence in tuned.reproducers:
        yield f"wrong result: {sentence}"
    yield summary(tuned.report)
    yield _closing(tuned)


def _closing(tuned: Tuned) -> str:
    parts = [f"{plural(len(tuned.regions), 'different region')} in {duration(tuned.seconds)}"]
    gain = sum(region.count * region.gain for region in tuned.regions)
    if gain:
        parts.append(f"{duration(gain)} saved by a run, all regions together")
    for count, what in (
        (tuned.left, "not reached"),
        (tuned.unmeasurable, "that cannot be run alone"),
        (tuned.unclear, "where the machine was too busy to tell"),
        (tuned.failures, "whose measurement failed"),
    ):
        if count:
            parts.append(f"{count} {what}: left to the cost model")
    return "; ".join(parts)


def _table(regions: Sequence[TunedRegion]) -> TextTable:
    rows: list[tuple[str, ...]] = []
    for region in regions:
        others = {variant: seconds for variant, seconds in region.seconds.items() if variant != STOCK}
        times = "\n".join(f"{_milliseconds(seconds)} {variant}" for variant, seconds in others.items())
        stock = _milliseconds(region.seconds.get(STOCK))
        chosen = "provisional: the machine was busy" if region.provisional else region.chosen
        cells = str(region.count), region.formula, region.shape, stock, times, chosen, _margin(region)
        rows.append(cells)
    return TextTable(("", "region", "result", "stock ms", "with the kernel, ms", "chosen", "margin"), tuple(rows))


def _validated(regions: Sequence[TunedRegion]) -> TextTable:
    rows: list[tuple[str, ...]] = []
    for region in regions:
        for variant, value in region.differences.items():
            verdict = "wrong" if variant in region.refused else "right"
            rows.append((str(region.count), region.formula, region.shape, variant, f"{value:.1e}", verdict))
    return TextTable(("", "region", "result", "variant", "difference", "verdict"), tuple(rows))


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _margin(region: TunedRegion) -> str:
    stock = region.seconds.get(STOCK)
    if not stock or region.chosen == STOCK:
        return ""
    return f"{region.gain / stock:.0%} ± {region.noise / stock:.0%}"
