"""Report view for a terminal: each kind of region with its source and the end of its epilogue."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hlo_dispatch.report import CallSequence, PassRun, Region, Report, explanation
from hlo_dispatch.report.terminal import make_table, row
from hlo_dispatch.report.wording import plural, size, summary

_MOST_NAMES = 3
_BOOKKEEPING = frozenset(("abi", "library", "scratch"))


def print_explanation(target: Console, report: Report) -> None:
    """Print every region, equal ones grouped: first the dispatched ones, then those of XLA, then the summary."""
    for title, regions in (("dispatched", report.dispatched), ("left to XLA", report.left)):
        if regions:
            target.print(Text(f"{title} ({len(regions)})", style="bold"))
        for kind in _kinds(regions):
            _print_kind(target, kind)
    if report.sequences:
        target.print(Text(f"sequences ({len(report.sequences)})", style="bold"))
    for sequence in report.sequences:
        _print_sequence(target, sequence, [region for region in report.dispatched if region.call == sequence.name])
    for sentence in report.frozen_arguments:
        target.print(Text(sentence))
    target.print(Text(summary(report)))


def print_passes(target: Console, passes: Sequence[PassRun]) -> None:
    """Print the passes in their order: the computations that each changed, the module's size then, and its time."""
    table = make_table("pass", "changed", "instructions", "time")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    for run in passes:
        names, left = ", ".join(run.changed[:_MOST_NAMES]), len(run.changed) - _MOST_NAMES
        changed = f"{names} and {left} more" if left > 0 else names
        row(table, run.name, changed, f"{run.instructions:,}", f"{run.seconds * 1e3:.3f} ms")
    target.print(table)


def _kinds(regions: Iterable[Region]) -> list[list[Region]]:
    """Groups of regions that differ only in names and source locations, in order of their first region."""
    kinds: dict[tuple[Any, ...], list[Region]] = {}
    for region in regions:
        why = explanation(region)
        attributes = repr(region.attributes)
        key = (region.formula, region.shape, region.implementation, attributes, why, region.stopped_because)
        kinds.setdefault(key, []).append(region)
    return list(kinds.values())


def _print_kind(target: Console, kind: list[Region]) -> None:
    first = kind[0]
    count = f"{len(kind)} x " if len(kind) > 1 else ""
    target.print(Padding(Text(f"{count}{first.formula}   {first.shape}"), (1, 0, 0, 2), expand=False))
    grid = Table.grid(padding=(0, 2, 0, 0))
    for label, value in _details(first, kind):
        if value:
            grid.add_row(Text(label, style="dim", no_wrap=True), Text(value, overflow="fold"))
    target.print(Padding(grid, (0, 0, 0, 6), expand=False))


def _print_sequence(target: Console, sequence: CallSequence, members: Sequence[Region]) -> None:
    """Prints a sequence: its members in order, runs of equal ones as one row, and its memory."""
    memory = f"{plural(sequence.inner, 'intermediate value')} and scratch: {size(sequence.bytes)}"
    title = f"%{sequence.name} in {sequence.computation}: {plural(sequence.calls, 'call')}, waited for once; {memory}"
    target.print(Padding(Text(title), (1, 0, 0, 2), expand=False))
    rows = ((member.formula, member.shape, member.implementation or "") for member in members)
    grid = Table.grid(padding=(0, 2, 0, 0))
    for (formula, shape, implementation), run in itertools.groupby(rows):
        count = len(list(run))
        grid.add_row(Text(f"{count} x" if count > 1 else ""), Text(formula), Text(shape), Text(implementation))
    target.print(Padding(grid, (0, 0, 0, 6), expand=False))


def _details(region: Region, kind: list[Region]) -> Iterator[tuple[str, str]]:
    if region.kernel is not None:
        yield "kernel", f"{region.kernel}, {region.implementation}"
        yield "attributes", attributes_in_words(region.attributes)
    yield "why", explanation(region)
    ends = sorted({f"%{other.stopped_at}" for other in kind if other.stopped_at})
    where = f"{_some(ends)}: " if ends else ""
    yield "ends", f"{where}{region.stopped_because}" if region.stopped_because else ""
    yield "at", _some([f"%{other.name}" for other in kind])
    yield "from", _some(list(dict.fromkeys(place(other) for other in kind if other.op_name or other.source)), shown=1)


def place(region: Region) -> str:
    """Source of a region: the framework's op name and the end of its file's path."""
    path, _, line = region.source.rpartition(":")
    source = f"{'/'.join(PurePath(path).parts[-2:])}:{line}" if path else ""
    return f"{region.op_name} ({source})" if region.op_name and source else region.op_name or source


def _some(names: list[str], shown: int = 2) -> str:
    if len(names) <= shown + 1:
        return ", ".join(names)
    return f"{', '.join(names[:shown])} and {plural(len(names) - shown, 'other')}"


def attributes_in_words(attributes: Mapping[str, Any]) -> str:
    """A kernel call's attributes in one line: `src f32 1x64x56x56, …, strides 1 1, relu`."""
    parts: list[str] = []
    for name, value in attributes.items():
        role, _, fact = name.rpartition("_")
        if name in _BOOKKEEPING or (fact in ("dims", "strides") and f"{role}_type" in attributes):
            continue
        if fact == "type" and f"{role}_dims" in attributes:
            parts.append(f"{role} {value} {'x'.join(map(str, attributes[f'{role}_dims']))}")
        elif isinstance(value, Mapping):
            parts.append(_post_op(cast(Mapping[str, Any], value)))
        elif isinstance(value, list | tuple):
            parts.append(f"{name} {' '.join(map(str, cast(Sequence[Any], value)))}")
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def _post_op(post_op: Mapping[str, Any]) -> str:
    if "dims" in post_op:
        return f"{post_op['algorithm']} {post_op['type']} {'x'.join(map(str, post_op['dims']))}"
    numbers = [f"{post_op[name]:g}" for name in ("alpha", "beta") if post_op.get(name)]
    return f"{post_op.get('algorithm')}({', '.join(numbers)})" if numbers else str(post_op.get("algorithm"))
