"""The content of a report for people, as paragraphs and tables of plain text: `terminal.py` and `html.py` render it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlo_dispatch.report.values import Group, Region, Report, grouped
from hlo_dispatch.report.wording import summary


@dataclass(frozen=True)
class TextTable:
    """Columns and rows; a column without a name has counts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Content = Iterable[TextTable | str]
"""Tables and paragraphs, in order."""


def report_content(report: Report) -> Iterator[TextTable | str]:
    """Content of a report: tables of dispatched and of left regions, and a closing line; empty tables are omitted."""
    if report.dispatched:
        yield _dispatched(report.dispatched)
    if report.left:
        yield _left(report.left)
    if report.failure:
        yield f"{report.module}: {report.failure}"
    yield from report.frozen_arguments
    yield summary(report)


def _dispatched(regions: Iterable[Region]) -> TextTable:
    """Regions that a vendor kernel computes, equal ones counted."""
    rows = [(str(g.count), g.formula, g.shape, f"{g.kernel} {g.implementation or ''}") for g in grouped(regions)]
    return TextTable(("", "dispatched region", "result", "kernel and its implementation"), tuple(rows))


def _left(regions: Iterable[Region]) -> TextTable:
    """Regions that stay with XLA, equal ones counted, with the reason."""
    rows = [(str(group.count), group.formula, group.shape, group.reason) for group in _by_reason(grouped(regions))]
    return TextTable(("", "left to XLA", "result", "why"), tuple(rows))


def _by_reason(groups: Sequence[Group]) -> list[Group]:
    """Same reasons next to each other, in order of first appearance."""
    reasons = list(dict.fromkeys(group.reason for group in groups))
    return sorted(groups, key=lambda group: reasons.index(group.reason))
