"""Data of the explain page, as plain lists for JSON: both modules' graphs and their regions.

A graph has the top-level instructions of one computation; a fusion carries its members as rows. Strings are
stored once, in a table, because names and shapes repeat thousands of times. Of a module too large to be drawn
the first instructions are, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.report import Region, Report, explanation
from hlo_dispatch.report.wording import summary

MOST_INSTRUCTIONS = 20_000
"""Of one graph; the page stays below some 10 MB and a browser scrolls it without effort."""
_TUPLE = 13


def drawing(report: Report) -> dict[str, Any]:
    """All data of the page. The report must contain its modules."""
    assert report.before is not None
    strings = _Strings()
    before = _graphs(report.before, _Covered(report.regions), strings)
    # Where nothing was dispatched there is one graph, not two equal ones.
    after = _graphs(report.after, _Calls(report.regions), strings) if report.after is not None else []
    return {
        "module": report.module,
        "summary": summary(report),
        "regions": [_region(region) for region in report.regions],
        "before": before,
        "after": after,
        "strings": strings.listed,
    }


class _Strings:
    """String table: graphs refer to strings by number."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.listed)
            self.listed.append(text)
        return number


class _Covered:
    """Regions in the module before: all replaced instructions, or the anchor op where XLA computes the region."""

    def __init__(self, regions: tuple[Region, ...]) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        for number, region in enumerate(regions):
            for name in region.covered or (region.name,):
                self._numbers.setdefault((region.computation, name), number)

    def number(self, computation: str, name: str) -> int | None:
        return self._numbers.get((computation, name))

    def numbers(self, computation: str, name: str) -> list[int]:
        number = self.number(computation, name)
        return [] if number is None else [number]


class _Calls:
    """Regions in the module after: the custom-call, or the anchor op where XLA computes it."""

    def __init__(self, regions: tuple[Region, ...]) -> None:
        self._numbers: dict[tuple[str, str], list[int]] = {}
        for number, region in enumerate(regions):
            self._numbers.setdefault((region.computation, region.call or region.name), []).append(number)

    def number(self, computation: str, name: str) -> int | None:
        return next(iter(self.numbers(computation, name)), None)

    def numbers(self, computation: str, name: str) -> list[int]:
        """Several where the call is a sequence."""
        return self._numbers.get((computation, name), [])


def _graphs(serialized: bytes, regions: _Covered | _Calls, strings: _Strings) -> list[dict[str, Any]]:
    module: Any = Module.from_bytes(serialized)
    entry = module.proto.entry_computation_id
    computations: list[Any] = [computation for computation, _ in module.control_flow_computations()]
    # The entry comes first: that is what a reader expects to see.
    computations.sort(key=lambda computation: computation.id != entry)
    return [_graph(module, computation, regions, strings) for computation in computations]


def _graph(module: Any, computation: Any, regions: _Covered | _Calls, strings: _Strings) -> dict[str, Any]:
    flat: Any = FlatGraph(module, computation)
    places = {instruction.id: place for place, instruction in enumerate(computation.instructions)}
    nodes: list[list[Any]] = []
    for instruction in list(computation.instructions)[:MOST_INSTRUCTIONS]:
        identifier = instruction.id
        rows: list[list[int]] = []
        for member in dict.fromkeys(flat.members.get(identifier, ())):
            region = regions.number(computation.name, member.name)
            rows.append([strings(member.name), strings(member.opcode), strings(_short(member.proto)), _or_none(region)])
        own = regions.numbers(computation.name, instruction.name)
        held = own or list(dict.fromkeys(row[3] for row in rows if row[3] >= 0))
        nodes.append(
            [
                strings(instruction.name),
                strings(instruction.opcode),
                strings(_short(instruction)),
                [places[operand] for operand in instruction.operand_ids],
                held,
                strings(instruction.metadata.op_name),
                rows,
                strings(instruction.custom_call_target),
            ]
        )
    return {"name": computation.name, "nodes": nodes, "total": len(computation.instructions)}


def _or_none(number: int | None) -> int:
    return -1 if number is None else number


def _short(instruction: Any) -> str:
    """The shape without its layout; of a tuple's parts the first tells most."""
    shape = instruction.shape
    if shape.element_type == _TUPLE:
        parts = [str(shape_of(part)).partition("{")[0] for part in list(shape.tuple_shapes)[:3]]
        more = ", …" if len(shape.tuple_shapes) > 3 else ""
        return f"({', '.join(parts)}{more})"
    return str(shape_of(shape)).partition("{")[0]


def _region(region: Region) -> dict[str, Any]:
    path, _, line = region.source.rpartition(":")
    return {
        "name": region.name,
        "computation": region.computation,
        "formula": region.formula,
        "shape": region.shape,
        "kernel": region.kernel or "",
        "entry": region.entry,
        "implementation": region.implementation or "",
        "why": explanation(region),
        "stoppedAt": region.stopped_at,
        "stoppedBecause": region.stopped_because,
        "opName": region.op_name,
        "source": region.source,
        "sourceEnd": f"{PurePath(path).name}:{line}" if path else "",
        "covered": list(region.covered),
        "call": region.call,
        "missed": region.missed,
        "attributes": {name: _attribute(value) for name, value in region.attributes.items()},
    }


def _attribute(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_attribute(item)}" for name, item in cast(Mapping[str, Any], value).items())
    if isinstance(value, list | tuple):
        return " ".join(_attribute(item) for item in cast(Sequence[Any], value))
    return f"{value:g}" if isinstance(value, float) else str(value)
