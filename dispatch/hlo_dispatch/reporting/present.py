"""Reports drawn for a terminal; the values themselves are in `report.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from hlo_dispatch.report import Group, Region, Report, grouped

_ANY_WIDTH = 10_000
"""Characters: more than any table of ours has."""
_ONE_PIECE = ("", "result", "kind", "name", "model")


def console(*, errors: bool = False) -> Console:
    """A console for standard output, or for standard error.

    A file or a pipe has no width: there a line is as long as what it says, unless `COLUMNS` says otherwise.
    """
    made = Console(stderr=errors, highlight=False)
    if not made.is_terminal and not os.environ.get("COLUMNS"):
        made.width = _ANY_WIDTH
    return made


def print_report(target: Console, report: Report) -> None:
    """Print what was dispatched, what was left and why, and a closing line."""
    for part in report_parts(report):
        target.print(part)


def report_parts(report: Report) -> Iterator[RenderableType]:
    """The pieces of a printed report, in order; empty tables are left out."""
    if report.dispatched:
        yield dispatched_table(report.dispatched)
        yield Text()
    if report.left:
        yield left_table(report.left)
        yield Text()
    if report.failure:
        yield Text(f"{report.module}: {report.failure}")
    yield Text(summary(report))


def summary(report: Report) -> str:
    """One line: how much was dispatched and what the pass cost."""
    if report.candidates:
        count = f"{len(report.dispatched)} of {plural(len(report.candidates), 'region')} dispatched"
        if report.sequences:
            count += f" in {plural(report.calls, 'call')}"
    else:
        count = "no region that a kernel could take"
    stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in report.stages.items())
    cost = f"pass {duration(report.seconds)}" + (f" ({stages})" if stages else "")
    return f"{report.module}: {count}; {plural(report.instructions, 'instruction')}; {cost}"


def dispatched_table(regions: Iterable[Region]) -> Table:
    """Regions that a vendor kernel computes, equal ones counted."""
    groups = grouped(regions)
    table = make_table("", "dispatched region", "result", "kernel and its implementation")
    for group in groups:
        row(table, str(group.count), group.formula, group.shape, f"{group.kernel} {group.implementation or ''}")
    return table


def left_table(regions: Iterable[Region]) -> Table:
    """Regions that stay with XLA, equal ones counted, with the reason."""
    table = make_table("", "left to XLA", "result", "why")
    for group in _by_reason(grouped(regions)):
        row(table, str(group.count), group.formula, group.shape, group.reason)
    return table


def _by_reason(groups: Sequence[Group]) -> list[Group]:
    """Same reasons next to each other, in order of first appearance."""
    reasons = list(dict.fromkeys(group.reason for group in groups))
    return sorted(groups, key=lambda group: reasons.index(group.reason))


def make_table(*columns: str) -> Table:
    """A table in the house style: nothing is cut off, counts stand right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        # Names and shapes are easier to read in one piece; sentences and formulas wrap.
        table.add_column(column, overflow="fold", justify="left" if column else "right", no_wrap=column in _ONE_PIECE)
    return table


def row(table: Table, *cells: str) -> None:
    """Add a row of plain text: shapes have brackets, which rich would read as markup."""
    table.add_row(*(Text(cell) for cell in cells))


def duration(seconds: float) -> str:
    """`12 µs`, `3.4 ms`, `1.25 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s"


def plural(count: int, noun: str) -> str:
    """`1 region`, `1,234 regions`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """Bytes for a person: `12 B`, `3.4 kB`, `1.25 MB`."""
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in_unit = count / (1e3 if unit == "kB" else 1e6)
        if count_in_unit < 1000:
            return f"{count_in_unit:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"
