"""Counts of a model's anchor ops, and of those that the policy "always" dispatches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import hlo_dispatch
from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.errors import HloDispatchError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.match.anchors.pooling import is_pooling
from hlo_dispatch.report import Region, Report, explanation

POOLING = "reduce-window"
OPCODES = ("convolution", "dot", POOLING)


class _Enough(Exception):
    """Stops XLA: generating code is most of a compilation and nobody wants the code."""


@dataclass(frozen=True)
class Counts:
    """One model's anchors under one jax."""

    anchors: dict[str, int]
    """Opcode → how many instructions of it XLA gave us; of the windows those that pool, not the reductions."""
    dispatched: dict[str, int]
    """Opcode → how many of them are gone afterwards."""
    left: dict[str, int]
    """Refusal code → how many anchors it left to XLA."""


def capture(lowered: Any) -> bytes:
    """The serialized module that XLA gives the pass.

    Raises:
        HloDispatchError: XLA failed before it, or a compilation cache answered.
    """
    from jax.extend import xla

    captured: list[bytes] = []

    def keep(module: bytes) -> None:
        captured.append(module)
        raise _Enough

    hlo_dispatch.uninstall()
    xla.register_hlo_module_transformation(keep, name="zoo", platforms="cpu")
    try:
        lowered.compile()
    except Exception as error:
        if not captured:
            raise HloDispatchError(f"XLA did not get as far as the pass: {error}") from error
    finally:
        xla.clear_hlo_module_transformation("zoo", platforms="cpu")
    if not captured:
        raise HloDispatchError("XLA compiled nothing: its compilation cache answered")
    return captured[-1]


def count(module: bytes) -> tuple[Counts, Report]:
    """Count what the module has before and after the pass, not what the pass says of itself."""
    rewritten = hlo_dispatch.rewrite(module, policy="always")
    before = _anchors(module)
    after = before if rewritten.proto is None else _anchors(rewritten.proto)
    dispatched = {opcode: before[opcode] - after[opcode] for opcode in OPCODES}
    reasons = Counter(region.refusal.code for region in left(rewritten.report) if region.refusal is not None)
    return Counts(before, dispatched, dict(sorted(reasons.items()))), rewritten.report


def left(report: Report) -> list[Region]:
    """The anchors that stay with XLA."""
    return [r for r in report.left if r.opcode in OPCODES and not r.missed]


def reasons(report: Report) -> list[str]:
    """A line for each kind of anchor left behind: how often, what, where from, and why."""
    kinds = Counter((r.opcode, r.shape, _place(r.op_name), explanation(r)) for r in left(report))
    return [f"{n:5} x {op} {shape} [{place}] {why}" for (op, shape, place, why), n in kinds.most_common()]


def _place(op_name: str) -> str:
    return "/".join(op_name.split("/")[-2:])


def _anchors(module: bytes) -> dict[str, int]:
    parsed = Module.from_bytes(module)
    opcodes = Counter(instruction.opcode for instruction in parsed.instructions)
    graphs = [FlatGraph(parsed, computation) for computation, _ in parsed.control_flow_computations()]
    opcodes[POOLING] = sum(is_pooling(node) for graph in graphs for node in graph.nodes)
    return {opcode: opcodes[opcode] for opcode in OPCODES}
