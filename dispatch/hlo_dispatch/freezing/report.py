"""What was made of frozen arrays, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_dispatch.freezing.signature import is_key
from hlo_dispatch.report import Report
from hlo_dispatch.report.content import TextTable
from hlo_dispatch.report.wording import size

_MOST = 12
"""Rows of a table that are written out."""
_MOST_NAMES = 4


def bytes_of(array: Any) -> int:
    """Size of an array of JAX's in memory, where numbers of four bits share a byte."""
    return array.nbytes if is_key(array.dtype) else array.on_device_size_in_bytes()


@dataclass(frozen=True)
class FrozenValue:
    """One array that a program holds."""

    origin: str
    """Where it is from: an instruction of the module, the call that it was packed for, or the argument itself."""
    shape: str
    bytes: int
    is_packed: bool = False
    """Whether it lies as one library's kernel wants it on this kind of processor."""


_Row = tuple[FrozenValue, str]
"""A value and how it is held."""


@dataclass(frozen=True)
class ProgramReport:
    """One program, for one signature of the arguments that are not frozen."""

    signature: str
    prepared: tuple[FrozenValue, ...]
    """What was computed once from frozen arrays."""
    kept: tuple[FrozenValue, ...]
    """Frozen arrays that the program reads as they are."""
    dispatched: Report | None = None
    """What the pass did with the program."""
    narrowed: int = 0
    """How many frozen arrays are held narrower than they were given."""
    not_narrowed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Weights that were to be held narrower and are not: name → why not."""
    change: float | None = None
    """How far that moves results, as `largest_change` found it; None: it was not asked."""

    @property
    def bytes(self) -> int:
        """Of all that it holds."""
        return sum(value.bytes for value in (*self.prepared, *self.kept))


@dataclass(frozen=True)
class FreezeReport:
    """A frozen function's programs; `str` is a table, and so is what a notebook shows."""

    programs: tuple[ProgramReport, ...] = ()

    def __str__(self) -> str:
        if not self.programs:
            return "nothing is prepared yet: the first call does it"
        return "\n\n".join("\n".join(_lines(program)) for program in self.programs)

    def _repr_html_(self) -> str:
        from hlo_dispatch.report.html import html_of

        return html_of(self._content())

    def _content(self) -> Iterator[TextTable | str]:
        if not self.programs:
            yield str(self)
        for program in self.programs:
            yield from (sentence.strip() for sentence in _sentences(program))
            rows = _rows(program)
            yield TextTable(("kind", "origin", "shape", "held"), tuple(map(_cells, rows[:_MOST])))
            yield from (sentence.strip() for sentence in _omitted_rows(rows))


def _lines(program: ProgramReport) -> Iterator[str]:
    yield from _sentences(program)
    rows = _rows(program)
    shown = rows[:_MOST]
    widths = [max((len(text) for text in column), default=0) for column in zip(*map(_cells, shown), strict=True)]
    for row in shown:
        kind, origin, shape, held = (text.ljust(width) for text, width in zip(_cells(row), widths, strict=True))
        yield f"  {kind}  {origin}  {shape}  {held}".rstrip()
    yield from _omitted_rows(rows)


def _sentences(program: ProgramReport) -> Iterator[str]:
    yield f"({program.signature}): {size(program.bytes)}"
    if program.narrowed:
        change = "largest_change(...) tells how far" if program.change is None else f"at most by {program.change:.2g}"
        yield f"  {program.narrowed} weights are held smaller than they were given, which moves results: {change}"
    for why in dict.fromkeys(program.not_narrowed.values()):
        names = [name for name, reason in program.not_narrowed.items() if reason == why]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        yield f"  not narrowed, since {why}: {', '.join(names[:_MOST_NAMES])}{more}"


def _rows(program: ProgramReport) -> list[_Row]:
    """Largest first."""
    rows = [(value, "packed" if value.is_packed else "prepared") for value in program.prepared]
    rows += [(value, "as it is") for value in program.kept]
    return sorted(rows, key=lambda row: -row[0].bytes)


def _omitted_rows(rows: Sequence[_Row]) -> Iterator[str]:
    if len(rows) > _MOST:
        left = rows[_MOST:]
        yield f"  and {len(left)} more, {size(sum(value.bytes for value, _ in left))}"


def _cells(row: _Row) -> tuple[str, str, str, str]:
    value, kind = row
    return kind, value.origin, value.shape, size(value.bytes)
