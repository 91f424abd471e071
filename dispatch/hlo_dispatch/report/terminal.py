"""Content rendered for a terminal, by rich."""

from __future__ import annotations

import io
import os
import shutil

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hlo_dispatch.report.content import Content, TextTable, report_content
from hlo_dispatch.report.values import Report

_ANY_WIDTH = 10_000
"""Characters: more than any of the tables has."""
_ONE_PIECE = ("", "result", "kind", "name", "model")


def console(*, errors: bool = False) -> Console:
    """A console for standard output, or for standard error.

    A file or a pipe has no width: lines are not wrapped there, unless `COLUMNS` is set.
    """
    made = Console(stderr=errors, highlight=False)
    if not made.is_terminal and not os.environ.get("COLUMNS"):
        made.width = _ANY_WIDTH
    return made


def print_report(target: Console, report: Report) -> None:
    """Print what was dispatched, what was left and why, and a closing line."""
    print_content(target, report_content(report))


def print_content(target: Console, content: Content) -> None:
    """Print tables, each with an empty line behind it, and paragraphs."""
    for piece in content:
        if isinstance(piece, str):
            target.print(Text(piece))
            continue
        target.print(_rendered(piece))
        target.print()


def text_of(content: Content) -> str:
    """The same as a string without colors, as wide as the terminal or `COLUMNS`; else not wrapped."""
    width = shutil.get_terminal_size((_ANY_WIDTH, 1)).columns
    target = Console(file=io.StringIO(), width=width, highlight=False, color_system=None, force_jupyter=False)
    with target.capture() as written:
        print_content(target, content)
    return "\n".join(line.rstrip() for line in written.get().rstrip("\n").split("\n"))


def _rendered(content: TextTable) -> Table:
    table = make_table(*content.columns)
    for cells in content.rows:
        row(table, *cells)
    return table


def make_table(*columns: str) -> Table:
    """A table in the common style: cells are not cut off, counts are right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        # Names and shapes are easier to read in one piece; sentences and formulas wrap.
        table.add_column(column, overflow="fold", justify="left" if column else "right", no_wrap=column in _ONE_PIECE)
    return table


def row(table: Table, *cells: str) -> None:
    """Add a row of plain text: shapes have brackets, which rich would read as markup."""
    table.add_row(*(Text(cell) for cell in cells))
