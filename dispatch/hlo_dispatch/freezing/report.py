"""Report of a frozen function: preprocessed values and frozen inputs of each program, as values, text and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_dispatch.freezing.signature import is_key
from hlo_dispatch.report import Report
from hlo_dispatch.report.content import TextTable
from hlo_dispatch.report.wording import size

_MOST = 12
"""Maximum rows of a printed table."""
_MOST_NAMES = 4


def bytes_of(array: Any) -> int:
    """Size of a JAX array in memory, where two 4-bit elements share a byte."""
    return array.nbytes if is_key(array.dtype) else array.on_device_size_in_bytes()


@dataclass(frozen=True)
class FrozenValue:
    """One array that a program holds."""

    origin: str
    """Its origin: an instruction of the module, the call that it was prepacked for, or the argument itself."""
    shape: str
    bytes: int
    is_packed: bool = False
    """Whether it is prepacked in a layout of one library's kernel for this kind of processor."""


_Row = tuple[FrozenValue, str]
"""(value, kind)."""


@dataclass(frozen=True)
class ProgramReport:
    """Report of one program, for one signature of the remaining arguments."""

    signature: str
    prepared: tuple[FrozenValue, ...]
    """Preprocessed values, computed once from frozen arrays."""
    kept: tuple[FrozenValue, ...]
    """Frozen arrays that the program reads unchanged."""
    dispatched: Report | None = None
    """The pass's report of the program."""
    narrowed: int = 0
    """Number of frozen arrays with a narrowed stored type."""
    not_narrowed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Weights that are not narrowed despite the request: name → why not."""
    rounded_products: int = 0
    """Number of products whose activations each call rounds to eight bits."""
    change: float | None = None
    """Largest change of results by narrowing (`largest_change`); None: not computed."""

    @property
    def bytes(self) -> int:
        """Bytes of all arrays that it holds."""
        return sum(value.bytes for value in (*self.prepared, *self.kept))


@dataclass(frozen=True)
class FreezeReport:
    """Report of a frozen function's programs; a table as text and in notebooks."""

    programs: tuple[ProgramReport, ...] = ()

    def __str__(self) -> str:
        if not self.programs:
            return "nothing is preprocessed yet: the first call does it"
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
            yield TextTable(("kind", "origin", "shape", "size"), tuple(map(_cells, rows[:_MOST])))
            yield from (sentence.strip() for sentence in _omitted_rows(rows))


def _lines(program: ProgramReport) -> Iterator[str]:
    yield from _sentences(program)
    rows = _rows(program)
    shown = rows[:_MOST]
    widths = [max((len(text) for text in column), default=0) for column in zip(*map(_cells, shown), strict=True)]
    for row in shown:
        kind, origin, shape, memory = (text.ljust(width) for text, width in zip(_cells(row), widths, strict=True))
        yield f"  {kind}  {origin}  {shape}  {memory}".rstrip()
    yield from _omitted_rows(rows)


def _sentences(program: ProgramReport) -> Iterator[str]:
    yield f"({program.signature}): {size(program.bytes)}"
    if program.narrowed:
        change = "largest_change(...) tells how far" if program.change is None else f"at most by {program.change:.2g}"
        yield f"  {program.narrowed} weights are narrowed, which changes results: {change}"
    if program.rounded_products:
        yield f"  activations of {program.rounded_products} products are rounded to eight bits in each call"
    for why in dict.fromkeys(program.not_narrowed.values()):
        names = [name for name, reason in program.not_narrowed.items() if reason == why]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        yield f"  not narrowed, since {why}: {', '.join(names[:_MOST_NAMES])}{more}"


def _rows(program: ProgramReport) -> list[_Row]:
    """Largest first."""
    rows = [(value, "prepacked" if value.is_packed else "preprocessed") for value in program.prepared]
    rows += [(value, "unchanged") for value in program.kept]
    return sorted(rows, key=lambda row: -row[0].bytes)


def _omitted_rows(rows: Sequence[_Row]) -> Iterator[str]:
    if len(rows) > _MOST:
        left = rows[_MOST:]
        yield f"  and {len(left)} more, {size(sum(value.bytes for value, _ in left))}"


def _cells(row: _Row) -> tuple[str, str, str, str]:
    value, kind = row
    return kind, value.origin, value.shape, size(value.bytes)
