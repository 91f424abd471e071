"""Pattern table view: the list of entries, and one entry in full."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.pattern.facts import Attribute, FactQuery
from hlo_dispatch.pattern.op_kinds import OP_KINDS
from hlo_dispatch.pattern.structure import Pattern
from hlo_dispatch.pattern.table import (
    Activation,
    AnchorKind,
    Attention,
    Binary,
    Elementwise,
    EltwiseBinding,
    GroupNorm,
    KernelBinding,
    Numerics,
    Recurrent,
    Routine,
    Table,
)
from hlo_dispatch.report.terminal import console, make_table, row

Region = Attention | Elementwise | GroupNorm | Recurrent
Entry = Activation | AnchorKind | Binary | KernelBinding | Pattern | Region | Routine

KINDS = {
    Pattern: "pattern",
    AnchorKind: "anchor",
    Attention: "attention",
    Recurrent: "recurrent layer",
    GroupNorm: "group norm",
    Elementwise: "elementwise region",
    Routine: "routine",
    Activation: "activation",
    Binary: "binary",
    KernelBinding: "kernel",
}


def entries(table: Table) -> Iterator[Entry]:
    """All entries of the table: regions computed as a whole, patterns, anchors, epilogue steps and kernels."""
    yield from table.attentions
    yield from table.recurrents
    yield from table.group_norms
    yield from table.elementwise
    yield from table.patterns
    yield from table.anchors.values()
    yield from table.routines
    yield from table.activations
    yield from table.binaries.values()
    yield from table.kernels.values()


def print_table(table: Table) -> None:
    """List all entries, a line each."""
    out = console()
    listing = make_table("kind", "name", "formula", "becomes")
    for entry in entries(table):
        row(listing, KINDS[type(entry)], entry.name, _formula(entry), _becomes(entry))
    out.print(listing)
    out.print(Text(f"from {', '.join(str(source) for source in table.sources)}", overflow="fold"))


def print_entry(table: Table, name: str) -> None:
    """Print one entry in full.

    Raises:
        HloDispatchError: no entry has that name; the message names the nearest ones.
    """
    named = [entry for entry in entries(table) if entry.name == name]
    if not named:
        known = [entry.name for entry in entries(table)]
        near = difflib.get_close_matches(name, known, n=3) or known
        raise HloDispatchError(f"no pattern is called {name!r}; there is {', '.join(near)}")
    out = console()
    for entry in named:
        out.print(Text(f"{KINDS[type(entry)]} {entry.name}", style="bold"))
        details = RichTable.grid(padding=(0, 2, 0, 0))
        for label, value in _details(entry):
            if value:
                details.add_row(Text(f"  {label}", no_wrap=True), Text(value, overflow="fold"))
        out.print(details)


def _formula(entry: Entry) -> str:
    return entry.formula if isinstance(entry.formula, str) else entry.formula.text


def _becomes(entry: Entry) -> str:
    match entry:
        case Activation():
            return _eltwise(entry.onednn)
        case Binary():
            return f"binary {entry.algorithm}"
        case AnchorKind():
            return " or ".join((entry.kernel, *entry.alternative_kernels))
        case Pattern() | Attention() | Elementwise() | GroupNorm() | Recurrent():
            return entry.kernel
        case Routine():
            return " or ".join(entry.kernels)
        case _:
            return entry.target


def _eltwise(binding: EltwiseBinding) -> str:
    numbers = [formula.text for formula in (binding.alpha, binding.beta) if formula]
    return f"eltwise {binding.algorithm}" + (f"({', '.join(numbers)})" if numbers else "")


def _details(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "formula", _formula(entry)
    yield "becomes", _becomes(entry)
    match entry:
        case Activation():
            for parameter in entry.parameters:
                yield "parameter", f"{parameter.name} = {parameter.solve.text} (for example {parameter.example:g})"
            yield "requires", entry.require.text if entry.require else ""
        case Binary():
            yield "opcode", entry.opcode
            yield "operand", _pairs(entry.roles)
        case AnchorKind():
            yield "opcode", entry.opcode
            yield "op kind", f"{entry.op_kind}: {OP_KINDS[entry.op_kind].sentence}"
            yield "types", ", ".join(entry.dtypes)
            following = ", ".join((*entry.binaries, *entry.activations))
            yield "epilogue", f"{following} (at most {entry.longest_chain})" if following else "nothing"
            yield "priority", str(entry.priority) if entry.priority else ""
            yield from _tolerances(entry.numerics)
        case Routine():
            yield "opcode", entry.opcode
            yield "targets", _pairs(entry.targets)
            yield "operands", _pairs(entry.operands)
            yield "results", _pairs(entry.results)
            yield from _tolerances(entry.numerics)
        case Attention():
            yield "score steps", _pairs({kind: step.formula for kind, step in entry.score_steps.items()})
            yield from _tolerances(entry.numerics)
        case Elementwise() | GroupNorm() | Recurrent():
            yield from _tolerances(entry.numerics)
        case Pattern():
            yield from _pattern_details(entry)
        case KernelBinding():
            yield "library", entry.library
            yield "symbol", entry.symbol
            yield "operands", _pairs(entry.operands)
            yield "attributes", _pairs(entry.attributes)
    yield "origin", getattr(entry, "origin", "")
    yield "written at", str(entry.location)


def _pattern_details(pattern: Pattern) -> Iterator[tuple[str, str]]:
    for spelling in pattern.spellings:
        yield "matches", str(spelling.root)
    for name, conditions in pattern.where.items():
        yield "where", "\n".join(f"{name} {condition}" for condition in conditions)
    yield "operands", ", ".join(pattern.operands.values())
    yield "attributes", _pairs({name: _attribute(value) for name, value in pattern.attributes.items()})
    yield "priority", str(pattern.priority)
    yield from _tolerances(pattern.numerics)


def _tolerances(numerics: Mapping[str, Numerics]) -> Iterator[tuple[str, str]]:
    for dtype, bound in numerics.items():
        yield "tolerance", f"{dtype} {bound.tolerance:g}: {bound.why}"


def _attribute(value: Attribute) -> str:
    if not isinstance(value, FactQuery):
        return str(value)
    return f"{value.fact}({value.of}{'' if value.dimension is None else f', {value.dimension}'})"


def _pairs(mapping: Any) -> str:
    return "\n".join(f"{name}: {meaning}" for name, meaning in mapping.items())
