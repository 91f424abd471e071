"""Explain page: a report as one HTML page with the graphs before and after and their regions, colored and clickable.

The page is one file that loads nothing: style, script and data are inside. `drawing.py` collects what it shows;
`page.html`, `page.css` and the scripts beside them define how it looks.
"""

from __future__ import annotations

import json
from functools import lru_cache
from html import escape
from importlib.resources import files
from pathlib import Path

from hlo_dispatch.cli.explain_page.drawing import drawing
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.module_files import write_atomically
from hlo_dispatch.report import Report

_SCRIPTS = ("layout.js", "view.js", "panel.js", "page.js")


def page(report: Report) -> str:
    """The page as text.

    Raises:
        HloDispatchError: the report has no modules, because it was made without details.
    """
    if report.before is None:
        advice = "make it with explain(), or with rewrite(module, details=True)"
        raise HloDispatchError(f"this report holds no module to draw: {advice}")
    # Inside a script element no `<` may start a tag or a comment, wherever it stands.
    data = json.dumps(drawing(report), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    filled = {
        "title": escape(report.module),
        "style": _part("page.css"),
        "script": "\n".join(_part(name) for name in _SCRIPTS),
        "data": data,
    }
    text = _part("page.html")
    for name, value in filled.items():
        before, _, after = text.partition(f"<!-- {name} -->")
        text = before + value + after
    return text


def write_page(report: Report, path: str | Path) -> None:
    """Write the page of a report that `hlo_dispatch.explain()` made (or `rewrite(…, details=True)`).

    Raises:
        HloDispatchError: the report has no modules, because it was made without details.
    """
    write_atomically(str(path), page(report).encode())


@lru_cache(maxsize=8)
def _part(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
