"""Refusal cases: modules that must be refused, made from the accepted goldens by mutations.

A kind is an entry of the table that a region of the report can name: an anchor's, a routine's, attention or a pattern.
Its base is the shortest golden that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import SMALL_CALL, Module, copy_of
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.pattern import Table, load_tables
from hlo_dispatch.pattern.op_kinds import GLUE_OP, OP_KINDS
from hlo_dispatch.pipeline import Pipeline
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.measurements import STOCK, KnownMeasurements, Measurement

GOLDEN = Path(__file__).with_name("golden")
MACHINE = Machine("AMD EPYC", frozenset(("avx2", "avx512f", "avx512dq", "avx512_bf16")), 2)
GLUE_OPS = tuple(op_kind.name for op_kind in OP_KINDS.values() if op_kind.cost_model == GLUE_OP)


@lru_cache(maxsize=1)
def table() -> Table:
    """The shipped table. JAX makes LAPACK's calls known when it first lowers one."""
    jax.jit(jnp.linalg.cholesky).lower(jnp.eye(2))
    return load_tables()


_BEGINS_MUCH = ("gather", "reduce-window", "scatter", "while")
"""Opcodes of routines' first instructions, of which most are no routine's."""

KINDS: dict[str, tuple[str, ...]] = {
    "anchor": tuple(name for name in table().anchors if name not in GLUE_OPS),
    "glue op": GLUE_OPS,
    "routine": tuple(routine.name for routine in table().routines if routine.opcode not in _BEGINS_MUCH),
    "cumulative routine": tuple(routine.name for routine in table().routines if routine.opcode == "reduce-window"),
    "search routine": tuple(routine.name for routine in table().routines if routine.opcode == "while"),
    "sparse routine": tuple(r.name for r in table().routines if r.opcode in ("gather", "scatter")),
    "attention": tuple(attention.name for attention in table().attentions),
    "recurrent layer": tuple(recurrent.name for recurrent in table().recurrents),
    "group norm": tuple(norm.name for norm in table().group_norms),
    "elementwise region": tuple(region.name for region in table().elementwise),
    "pattern": tuple(pattern.name for pattern in table().patterns if pattern.has_near_misses),
    "unreported pattern": tuple(pattern.name for pattern in table().patterns if not pattern.has_near_misses),
}
"""The kinds by what matches them."""


# --- pipelines ----------------------------------------------------------------------------------------------


class _AlwaysMeasured(KnownMeasurements):
    """The same measurement of every region and every program."""

    def __init__(self, measurement: Measurement) -> None:
        super().__init__()
        self._measurement = measurement

    def get(self, region: str) -> Measurement | None:
        return self._measurement


_SLOWER = Measurement(STOCK, {STOCK: 0.4e-3, "whole": 0.9e-3}, 0.0, 0.01e-3)
_WRONG = Measurement(STOCK, {}, refused={"whole": "it differs by 3"})
_LOST = Measurement("not-a-variant", {STOCK: 0.9e-3, "not-a-variant": 0.4e-3}, 0.5e-3)


@lru_cache(maxsize=16)
def pipeline(name: str) -> Pipeline:
    """A policy's pipeline, one with the same measurement of everything, or one whose kernels refuse everything."""
    if name in ("always", "never", "heuristic"):
        return Pipeline.make(table(), name, MACHINE)
    measurements = {"slower": _SLOWER, "wrong": _WRONG, "lost": _LOST}
    if name in measurements:
        return Pipeline.make(table(), "stored", MACHINE).with_knowledge(_AlwaysMeasured(measurements[name]))
    always = pipeline("always")
    refusal = Refusal(name, "the kernel refuses")
    planner = replace(always.planner, support_query=lambda *_, **__: refusal, prefetch=lambda _: False)
    return replace(always, planner=planner)


# --- bases --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """A golden and the region in it that shows the kind."""

    text: str
    region: str

    @property
    def module(self) -> bytes:
        return hlo_text.from_text(self.text)


@lru_cache(maxsize=64)
def bases(kind: str) -> tuple[Base, ...]:
    """Every golden that shows a kind in its entry computation, those with the fewest regions first."""
    found: list[tuple[int, int, Base]] = []
    for path in sorted((GOLDEN / kind).glob("*.before.hlo")):
        text = path.read_text()
        module = hlo_text.from_text(text)
        _, report = pipeline("always").run(module)
        entry = Module.from_bytes(module).entry.name
        names = [r.name for r in report.dispatched if (r.entry, r.computation) == (kind, entry)]
        found += [(len(report.regions), len(text), Base(text, name)) for name in names[:1]]
    return tuple(base for *_, base in sorted(found, key=lambda item: item[:2]))


# --- mutations ----------------------------------------------------------------------------------------------

Mutation = Callable[[Base], bytes]


def unchanged(base: Base) -> bytes:
    """The golden itself."""
    return base.module


def integers(base: Base) -> bytes:
    """The module in integers of which no kernel computes sums."""
    types = dict.fromkeys(("f32", "bf16", "f16", "f64", "c64", "s16"), "u64") | {"s8": "u16", "s4": "u16"}
    text = re.sub(rf"\b({'|'.join(types)})(?=\[)", lambda match: types[match[1]], base.text)
    return hlo_text.from_text(re.sub(r"((?:u64|u16)\[\] constant\()(\(.*?\)|[^)]*)", r"\g<1>1", text))


def double(base: Base) -> bytes:
    """The module in double precision."""
    return hlo_text.from_text(re.sub(r"\b(f32|bf16|f16)(?=\[)", "f64", base.text))


def enlarged(base: Base) -> bytes:
    """The module with every dimension 32 times as large."""

    def larger(match: re.Match[str]) -> str:
        return re.sub(r"\d+", lambda size: str(32 * int(size[0])), match[0])

    dimensions = r"\[[\d,]+\]|(?:slice|fft_length)=\{[^}]*\}+"
    return hlo_text.from_text(re.sub(dimensions, larger, base.text))


def dynamic(base: Base) -> bytes:
    """The region's leading dimension is known only at run time."""
    return _with_leading_dimension(base, "<={}")


def empty(base: Base) -> bytes:
    """The region's leading dimension is zero."""
    return _with_leading_dimension(base, "0")


def ordered(base: Base) -> bytes:
    """The region has a control predecessor."""
    module = unfused(base)
    (instruction,) = (proto for proto in module.entry.instructions if proto.name == base.region)
    order(module, instruction)
    return module.to_bytes()


def order(module: Module, instruction: InstructionProto) -> int:
    """Let an instruction of the entry run after a new one, whose id is returned."""
    first = next(proto for proto in module.entry.instructions if proto.opcode == "parameter")
    earlier = module.entry.instructions.add(opcode="negate", id=1 << 30, name="earlier", operand_ids=[first.id])
    earlier.shape.CopyFrom(first.shape)
    instruction.control_predecessor_ids.append(earlier.id)
    return earlier.id


def unfused(base: Base) -> Module:
    """The module with the instructions of every fusion in the entry, where control dependencies mean something."""
    module = Module.from_bytes(base.module)
    entry, ids, instructions = module.entry, dict[int, int](), list[InstructionProto]()

    def add(proto: InstructionProto, of: dict[int, int]) -> None:
        operands = [of[operand] for operand in proto.operand_ids]
        if proto.opcode == "fusion":
            called = module.computations[proto.called_computation_ids[0]]
            inner = {p.id: operands[p.parameter_number] for p in called.instructions if p.opcode == "parameter"}
            for member in called.instructions:
                if member.opcode != "parameter":
                    add(member, inner)
            of[proto.id] = inner[called.root_id]
            return
        copy = copy_of(proto)
        copy.id = of[proto.id] = len(instructions) + 1
        copy.operand_ids[:] = operands
        instructions.append(copy)

    for proto in entry.instructions[:]:
        add(proto, ids)
    entry.root_id = ids[entry.root_id]
    del entry.instructions[:]
    entry.instructions.extend(instructions)
    return module


def algorithm(base: Base) -> bytes:
    """The region requests an algorithm."""
    module = Module.from_bytes(base.module)
    for computation in module.proto.computations:
        for instruction in computation.instructions:
            if instruction.name == base.region:
                instruction.precision_config.algorithm = 6  # dot_bf16_bf16_f32
    return module.to_bytes()


def small_call(base: Base) -> bytes:
    """The entry is called as one of XLA's small calls."""
    module = Module.from_bytes(base.module)
    called = module.entry
    entry = module.proto.computations.add(id=module.fresh_computation_id(), name="calls")
    entry.program_shape.CopyFrom(called.program_shape)
    entry.instructions.extend(i for i in called.instructions if i.opcode == "parameter")
    call = entry.instructions.add(opcode="call", name="small_call", id=1 << 30, called_computation_ids=[called.id])
    call.operand_ids.extend(i.id for i in sorted(entry.instructions[:-1], key=lambda i: i.parameter_number))
    call.shape.CopyFrom(called.program_shape.result)
    call.frontend_attributes.map.add(key=SMALL_CALL, value="true")
    entry.root_id = call.id
    module.proto.entry_computation_id, module.proto.entry_computation_name = entry.id, entry.name
    return module.to_bytes()


def _with_leading_dimension(base: Base, size: str) -> bytes:
    """The module with another size wherever a shape begins with the region's leading dimension."""
    dimensions = re.search(rf"\b{re.escape(base.region)} = \(?\w+\[(\d+)", base.text)
    assert dimensions is not None, base.region
    leading = dimensions[1]
    return hlo_text.from_text(re.sub(rf"(\b[a-z]+\d+\[){leading}(?=[\],])", rf"\g<1>{size.format(leading)}", base.text))


UNREPORTED = ""
"""What stands for a code where the report has no region: nobody expects that a glue op or half a pattern is a call."""


@dataclass(frozen=True)
class Column:
    """One column of the matrix: how a base is changed, who runs it, and the code that each group of kinds gives."""

    mutate: Mutation
    pipeline: str
    codes: dict[str, str]
    """Group → code; absent: such a module means nothing."""


def _all(code: str, **other: str) -> dict[str, str]:
    groups = ("anchor", "routine", "cumulative routine", "search routine", "sparse routine", "attention", "pattern")
    codes = {group: code for group in groups}
    is_missed = other.get("pattern") == "near-miss"
    return codes | {"glue op": UNREPORTED, "unreported pattern": UNREPORTED if is_missed else code} | other


_NO_TREE = {"cumulative routine": UNREPORTED, "search routine": UNREPORTED, "sparse routine": UNREPORTED}
"""Nobody expects of any reduce-window that it begins a tree, nor of any gather or scatter that it adds up rows."""

_OF_LOOPS_AND_SUMS = ("search routine", "unreported pattern")
"""Whose region, a loop or a sum, may have no dimensions of its own."""


def _of_dimensions(code: str, **other: str) -> dict[str, str]:
    return {group: found for group, found in _all(code, **other).items() if group not in _OF_LOOPS_AND_SUMS}


MATRIX: dict[str, Column] = {
    "integers": Column(integers, "always", {"anchor": "dtype-unsupported", "routine": "dtype-unsupported"}),
    "double": Column(double, "always", {"attention": "dtype-unsupported"}),
    "dynamic": Column(dynamic, "always", _of_dimensions("dynamic-shape", pattern="near-miss")),
    "empty": Column(empty, "always", _of_dimensions("zero-size", pattern="near-miss", **_NO_TREE)),
    "ordered": Column(ordered, "always", _all("control-dependency", pattern="near-miss", **_NO_TREE)),
    "algorithm": Column(algorithm, "always", {"anchor": "precision-unsupported"}),
    "small call": Column(small_call, "heuristic", _all("small-call")),
    "never": Column(unchanged, "never", _all("policy")),
    "few": Column(unchanged, "heuristic", _all("policy")),
    "slower": Column(unchanged, "slower", _all("slower")),
    "wrong": Column(unchanged, "wrong", _all("wrong-result")),
    "lost variant": Column(unchanged, "lost", _all("kernel-unsupported")),
    "unsupported": Column(unchanged, "kernel-unsupported", _all("kernel-unsupported")),
    "reference": Column(unchanged, "reference-kernel", _all("reference-kernel")),
}
