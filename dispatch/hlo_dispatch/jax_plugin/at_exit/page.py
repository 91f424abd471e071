"""HTML page of a run report: every module with its regions, equal ones counted; self-contained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any

from hlo_dispatch.report.html import table
from hlo_dispatch.report.wording import duration, plural

_Row = tuple[str, str, str, str]


def page(about: Mapping[str, Any], modules: Iterable[Mapping[str, Any]]) -> str:
    """The page as text; modules without regions share one line."""
    sections: list[str] = []
    plain: Counter[str] = Counter()
    for module in modules:
        if any(not _is_missed(region) for region in module["regions"]):
            sections.append(_section(module))
        else:
            plain[str(module["module"])] += 1
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f"<title>{escape(' '.join(map(str, about['arguments'])))} · hlo-dispatch</title>",
        f"<style>\n{_style()}</style>\n</head>\n<body>",
        f"<h1>{escape(' '.join(map(str, about['arguments'])))}</h1>\n<p>{escape(str(about['summary']))}</p>",
        *sections,
        _plain(plain),
        *_notes(about),
        "</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _section(module: Mapping[str, Any]) -> str:
    regions = [region for region in module["regions"] if not _is_missed(region)]
    taken = [region for region in regions if region["kernel"] is not None]
    left = [region for region in regions if region["kernel"] is None]
    saved = f"; {duration(module['saved'])} saved by a run" if module["saved"] is not None else ""
    return "\n".join(
        [
            f"<details{' open' if taken else ''}>",
            f"<summary><b>{escape(str(module['module']))}</b> {len(taken)} of {plural(len(regions), 'region')} "
            f"dispatched; {plural(module['instructions'], 'instruction')}; pass {duration(module['seconds'])}{saved}"
            "</summary>",
            _table("dispatched region", "kernel and its implementation", _counted(taken)),
            _table("left to XLA", "why", _counted(left)),
            "</details>",
        ]
    )


def _counted(regions: Iterable[Mapping[str, Any]]) -> Counter[_Row]:
    return Counter(_row(region) for region in regions)


def _row(region: Mapping[str, Any]) -> _Row:
    if region["kernel"] is not None:
        what = f"{region['kernel']} {region['implementation'] or ''}"
        return region["formula"], region["shape"], what, region["reason"]
    refusal = region["refusal"]
    if refusal is None or refusal["code"] == "policy":
        return region["formula"], region["shape"], region["reason"], ""
    return region["formula"], region["shape"], f"{refusal['code']}: {refusal['sentence']}", ""


def _table(title: str, what: str, rows: Counter[_Row]) -> str:
    if not rows:
        return ""
    return table(("", title, "result", what, ""), ((str(count), *cells) for cells, count in rows.items()))


def _plain(modules: Counter[str]) -> str:
    if not modules:
        return ""
    names = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in modules.most_common())
    return f"<p>{plural(modules.total(), 'module')} with nothing that a kernel could take: {escape(names)}</p>"


def _notes(about: Mapping[str, Any]) -> Iterator[str]:
    sentences = about["statistics"].get("frozen_arguments", ())
    if sentences:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        yield f"<h2>Frozen arguments (hlo_dispatch.jit)</h2>\n<ul>{items}</ul>"
    if about["left_out"]:
        yield f"<p>{plural(about['left_out'], 'more module')}, counted above and not listed.</p>"
    for sentence in about["failures"]:
        yield f'<p class="failure">The pass failed on a module: {escape(sentence)}</p>'


def _is_missed(region: Mapping[str, Any]) -> bool:
    """Whether it is only a near miss of a pattern."""
    return region["refusal"] is not None and region["refusal"]["code"] == "near-miss"


@lru_cache(maxsize=1)
def _style() -> str:
    return files(__name__.rpartition(".")[0]).joinpath("page.css").read_text(encoding="utf-8")
