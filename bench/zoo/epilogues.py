"""Ends of epilogues before an elementwise instruction: what the matcher does not support yet."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import re
from collections import Counter

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ELEMENTWISE
from hlo_dispatch.report import Report

_BYTES = {"bf16": 2, "f16": 2, "f32": 4}
# The value has to exist for its other readers: there is nothing to learn.
_IN_ORDER = "the value is used more than once"


def ends(module: bytes, report: Report) -> list[str]:
    """A line for each kind of end, the most bytes first: what was computed, what followed, why it was not taken."""
    computations = Module.from_bytes(module).proto.computations
    opcodes = {instruction.name: instruction.opcode for c in computations for instruction in c.instructions}
    count, size = Counter(), Counter()
    for region in report.dispatched:
        opcode = opcodes.get(region.stopped_at, "")
        if opcode not in ELEMENTWISE or _IN_ORDER in region.stopped_because:
            continue
        type_ = region.shape.partition("[")[0]
        kind = f"{region.opcode} {type_} | {region.formula} → {opcode}: {region.stopped_because}"
        count[kind] += 1
        size[kind] += _bytes(region.shape)
    return [f"{total / 2**20:8.1f} MiB {count[kind]:5} x {kind}" for kind, total in size.most_common()]


def _bytes(shape: str) -> int:
    """Of `f32[1,112,112,64]`."""
    type_, _, rest = shape.partition("[")
    total = _BYTES.get(type_, 0)
    for number in re.findall(r"\d+", rest):
        total *= int(number)
    return total
