"""Content rendered as HTML: a fragment that a notebook shows, and tables of pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hlo_dispatch.report.content import Content

# Notebooks align cells to the right and do not break lines in them.
_PLACED = "vertical-align: top; padding: 2px 16px 2px 0"
_CELL = f'style="text-align: left; white-space: normal; {_PLACED}"'
_COUNT = f'style="text-align: right; {_PLACED}"'


def html_of(content: Content) -> str:
    """A fragment without style sheets or scripts, since notebooks remove them where they do not trust the file."""
    pieces = (
        f"<p>{escape(piece)}</p>" if isinstance(piece, str) else table(piece.columns, piece.rows, is_styled=True)
        for piece in content
    )
    return "\n".join(("<div>", *pieces, "</div>"))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, is_styled: bool = False) -> str:
    """A table of plain text.

    Args:
        is_styled: cells say how they are aligned; where a page has a style sheet they need not.
    """
    styles = [f" {_CELL if column else _COUNT}" if is_styled else "" for column in columns]
    lines = [_row("th", columns, styles), *(_row("td", cells, styles) for cells in rows)]
    return "\n".join(["<table>", *lines, "</table>"])


def _row(tag: str, cells: Sequence[str], styles: Sequence[str]) -> str:
    shown = (escape(cell).replace("\n", "<br>") for cell in cells)
    return f"<tr>{''.join(f'<{tag}{s}>{cell}</{tag}>' for cell, s in zip(shown, styles, strict=True))}</tr>"
