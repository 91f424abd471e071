"""Helpers for structural patterns: a table of one pattern, HLO around a few lines, and the matches in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.structural.finder import StructuralFinder, StructuralMatches
from hlo_dispatch.pattern import Table, load_tables
from hlo_dispatch.pattern.read_expression import read_expression

TABLE = """\
version: 1
kernels:
  mine.kernel:
    target: mine.kernel
    library: ./library
    symbol: Kernel
    formula: for tests
    operands: {{{operands}}}
    attributes: {{{declared}}}
patterns:
  mine:
    formula: for tests
    match: |
{match}
    where: {{{where}}}
    kernel:
      name: mine.kernel
      operands: {{{bound}}}
      attributes: {{{attributes}}}
      {scratch}
    numerics: {{{numerics}}}
    {priority}
    origin: tests
"""

MODULE = """\
HloModule test

sum {{
  left = f32[] parameter(0)
  right = f32[] parameter(1)
  ROOT result_of_sum = f32[] add(left, right)
}}

largest {{
  left = f32[] parameter(0)
  right = f32[] parameter(1)
  ROOT result_of_largest = f32[] maximum(left, right)
}}

{before}
ENTRY main {{
{body}
}}
"""

ACTIVATIONS = {a.name: tuple(p.name for p in a.parameters) for a in load_tables().activations}


def write_table(
    folder: Path,
    match: str,
    where: str = "",
    attributes: dict[str, tuple[str, str]] | None = None,
    numerics: tuple[str, ...] = ("f32",),
    priority: int | None = None,
    scratch: str = "",
) -> Path:
    """A table whose one pattern gives its kernel every captured value, and every parameter as a f32 attribute.

    Args:
        where: the inside of the pattern's where.
        attributes: further ones, name → (type, what is bound to it).
    """
    (folder / "library").touch()
    expression = read_expression(match, ACTIVATIONS)
    constants = [name for name in expression.captures if f"{name}: {{constant" in where]
    operands = [name for name in expression.captures if name not in constants]
    given = {name: ("f32", f"value({name})") for name in (*constants, *expression.parameters)} | (attributes or {})
    path = folder / "mine.yaml"
    path.write_text(
        TABLE.format(
            operands=", ".join(f"{name}: any" for name in operands),
            declared=", ".join(f'{name}: "{kind}: any"' for name, (kind, _) in given.items()),
            match="\n".join(f"      {line}" for line in match.splitlines()),
            where=where,
            bound=", ".join(f"{name}: {name}" for name in operands),
            attributes=", ".join(f'{name}: "{value}"' if "(" in value else f"{name}: {value}"
                                 for name, (_, value) in given.items()),
            scratch=f"scratch: {scratch}" if scratch else "",
            numerics=", ".join(f"{dtype}: {{tolerance: 1e-6, why: tests}}" for dtype in numerics),
            priority="" if priority is None else f"priority: {priority}",
        )
    )  # fmt: skip
    return path


def module_text(body: str, before: str = "") -> str:
    """An entry computation of these instructions, and other computations `before` it."""
    return MODULE.format(body="\n".join(f"  {line.strip()}" for line in body.strip().splitlines()), before=before)


def flat_graph(body: str, before: str = "") -> FlatGraph:
    module = Module.from_bytes(hlo_text.from_text(module_text(body, before)))
    return FlatGraph(module, module.entry)


def find(folder: Path, body: str, match: str, before: str = "", **options) -> StructuralMatches:
    """What the pattern finds in an entry computation of these instructions."""
    return StructuralFinder(without_shipped(write_table(folder, match, **options))).find(flat_graph(body, before))


def without_shipped(table: Path) -> Table:
    """The table with its own patterns only."""
    loaded = load_tables([table])
    return replace(loaded, patterns=tuple(pattern for pattern in loaded.patterns if pattern.is_user_defined))


def names(found: StructuralMatches) -> list[list[str]]:
    """Each match's operands."""
    return [[view.node.name for view in match.operands.values()] for match in found.matches]


def sentence(found: StructuralMatches) -> str:
    assert not found.matches
    (miss,) = found.misses.values()
    return miss.sentence
