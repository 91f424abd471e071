"""Profile of a program, stock and dispatched: time by region, and the rest in generated code."""

# pyright: basic
from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hlo_dispatch.api import rewrite
from hlo_dispatch.autotune.run import executable
from hlo_dispatch.autotune.run.inputs import random_inputs
from hlo_dispatch.bench.thunks import instruction_seconds
from hlo_dispatch.bench.time_by_kind import time_by_kind
from hlo_dispatch.demo.timing import interleaved
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.entry_parameters import remove_donation
from hlo_dispatch.ir.inline import inline_calls
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.passes.call_groups.grouping import without_call_groups
from hlo_dispatch.report import Region, Report
from hlo_dispatch.vendor import registration

# What they call is recorded as well.
_HOLDERS = ("while", "conditional", "call")


@dataclass(frozen=True)
class RegionTime:
    """Regions that differ only in name, together."""

    count: int
    formula: str
    shape: str
    kernel: str
    """Empty where the region was left to XLA."""
    why: str
    """Why it was left."""
    stock: float
    """Seconds of a run in which stock XLA computes them, by their share of the fusions they are in."""
    dispatched: float | None
    """Seconds of a run in the rewritten program; None where they were left."""


@dataclass(frozen=True)
class LeftInstruction:
    """Generated code of the rewritten program, equal opcodes and shapes together."""

    count: int
    name: str
    """The largest one's."""
    opcode: str
    """`fusion (kLoop)` with what is in it, or the opcode."""
    shape: str
    seconds: float


@dataclass(frozen=True)
class TimeProfile:
    """A program's time."""

    module: str
    stock: float
    """Seconds of a run, the median of runs in turns."""
    dispatched: float
    stock_instructions: float
    """The sum over all instructions; what runs at the same time counts twice, and calls that are one sequence in the
    program stand one by one."""
    dispatched_instructions: float
    regions: tuple[RegionTime, ...]
    """Largest in stock first."""
    left: tuple[LeftInstruction, ...]
    """Largest first."""
    kinds: dict[str, dict[str, Any]]
    """Of both, their `TimeByKind`; a call group's time is shared among its members there."""

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON."""
        return asdict(self)


def profile_module(
    module: bytes | str,
    *,
    tables: Sequence[str | Path] | None = None,
    policy: str = "measure",
    runs: int = 10,
    seconds: float = 2.0,
) -> TimeProfile:
    """Run an optimized module (a serialized HloModuleProto, or HLO text) on random inputs, as it is and rewritten.

    Args:
        runs: how many runs are recorded of each.
        seconds: time spent on measuring whole runs.

    Raises:
        ModuleError, TableError, PolicyError, NoTrace.
    """
    before = hlo_text.parsed(module)
    inline_calls(before)
    remove_donation(before)  # each run reads them
    serialized = before.to_bytes()
    executable.start()
    registration.register()
    result = rewrite(serialized, tables=tables, policy=policy, details=True)
    ungrouped = result
    if result.report.sequences:
        # Their members are timed as calls of their own: nobody sees them inside.
        with without_call_groups():
            ungrouped = rewrite(serialized, tables=tables, policy=policy, details=True)
    grouped, after = (r.proto if r.proto is not None else serialized for r in (result, ungrouped))
    shapes = [shape_of(shape) for shape in before.entry.program_shape.parameters]
    operands = executable.to_device(random_inputs(before, shapes, 0))
    calls = {
        "stock": partial(executable.Executable(before), operands),
        "dispatched": partial(executable.Executable(Module.from_bytes(grouped)), operands),
    }
    times = interleaved(calls, seconds=seconds)
    kinds = {name: time_by_kind(call, runs=runs, seconds=0).to_dict() for name, call in calls.items()}
    rewritten = Module.from_bytes(after)
    if grouped != after:
        calls["dispatched"] = partial(executable.Executable(rewritten), operands)
    # In turns as well: half of the runs each before the other.
    halves = [(name, instruction_seconds(calls[name], max(1, runs // 2))) for name in (*calls, *reversed(calls))]
    by_name = {name: _mean([half for other, half in halves if other == name]) for name in calls}
    stock = _without_holders(before, by_name["stock"])
    dispatched = _without_holders(rewritten, by_name["dispatched"])
    return TimeProfile(
        module=result.report.module,
        stock=times["stock"].median,
        dispatched=times["dispatched"].median,
        stock_instructions=sum(stock.values()),
        dispatched_instructions=sum(dispatched.values()),
        regions=_regions(ungrouped.report, before, stock, dispatched),
        left=_left(ungrouped.report, rewritten, dispatched),
        kinds=kinds,
    )


def _mean(halves: list[dict[str, float]]) -> dict[str, float]:
    names = {name for half in halves for name in half}
    return {name: sum(half.get(name, 0.0) for half in halves) / len(halves) for name in names}


def _without_holders(module: Module, seconds: dict[str, float]) -> dict[str, float]:
    holders = {i.name for i in module.instructions if i.opcode in _HOLDERS}
    return {name: value for name, value in seconds.items() if name not in holders}


def _regions(
    report: Report, module: Module, stock: dict[str, float], dispatched: dict[str, float]
) -> tuple[RegionTime, ...]:
    share = _shares(report.regions, module, stock)
    groups: dict[tuple[str, str, str, str], list[Region]] = defaultdict(list)
    for region in report.regions:
        why = "" if region.dispatched else region.reason
        groups[region.formula, region.shape, region.kernel or "", why].append(region)
    found = [
        RegionTime(
            count=len(members),
            formula=formula,
            shape=shape,
            kernel=kernel,
            why=why,
            stock=sum(share[id(member)] for member in members),
            dispatched=sum(dispatched.get(member.call, 0.0) for member in members) if kernel else None,
        )
        for (formula, shape, kernel, why), members in groups.items()
    ]
    return tuple(sorted(found, key=lambda region: -region.stock))


def _shares(regions: Sequence[Region], module: Module, stock: dict[str, float]) -> dict[int, float]:
    """Each region's part of what stock takes: an instruction's time goes to the regions that it computes, evenly
    by how many of its inner instructions each of them covers; the anchor, which is the work, weighs as the rest."""
    tops = _members(module)
    top_of: dict[str, list[str]] = defaultdict(list)
    for top, seconds in stock.items():
        if seconds:
            for name in tops.get(top, ()):
                top_of[name].append(top)
    weights: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for region in regions:
        for name in {region.name, *region.covered}:
            for top in top_of[name]:
                weights[top][id(region)] += len(region.covered) + 1 if name == region.name else 1
    result: dict[int, float] = defaultdict(float)
    for top, parts in weights.items():
        whole = sum(parts.values())
        for owner, part in parts.items():
            result[owner] += stock[top] * part / whole
    return result


def _members(module: Module) -> dict[str, set[str]]:
    """Instruction → its name and, of a fusion, those of what is in it."""
    tops: dict[str, set[str]] = {}
    for computation in module.proto.computations[:]:
        for instruction in computation.instructions[:]:
            inner = {instruction.name}
            if instruction.opcode == "fusion":
                called = [module.computations[number] for number in instruction.called_computation_ids[:]]
                inner |= {own.name for one in called for own in one.instructions[:]}
            tops[instruction.name] = inner
    return tops


def _left(report: Report, module: Module, dispatched: dict[str, float]) -> tuple[LeftInstruction, ...]:
    calls = {region.call for region in report.dispatched}
    instructions = {i.name: i for i in module.instructions}
    groups: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for name, seconds in dispatched.items():
        if name not in calls:
            instruction = instructions.get(name)
            kind = _kind(module, instruction) if instruction is not None else "made by XLA afterwards"
            shape = str(shape_of(instruction.shape)) if instruction is not None else ""
            groups[kind, shape].append((seconds, name))
    found = [
        LeftInstruction(len(members), max(members)[1], kind, shape, sum(seconds for seconds, _ in members))
        for (kind, shape), members in groups.items()
    ]
    return tuple(sorted(found, key=lambda left: -left.seconds))


def _kind(module: Module, instruction: Any) -> str:
    if instruction.opcode != "fusion":
        return instruction.custom_call_target or instruction.opcode
    inner = [i.opcode for c in instruction.called_computation_ids[:] for i in module.computations[c].instructions[:]]
    worth = [opcode for opcode in dict.fromkeys(inner) if opcode not in ("parameter", "constant", "tuple", "bitcast")]
    return f"fusion of {', '.join(worth)}"
