"""Loop nest of a module: the trip counts of its `while` instructions, and how often each computation runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import CONTROL_FLOW
from hlo_dispatch.ir.schema import InstructionProto


def trip_count(loop: InstructionProto) -> int | None:
    """Trip count of a `while` for any inputs; None where XLA does not know it."""
    return _known_trip_count(loop.backend_config)


@lru_cache(maxsize=4096)
def _known_trip_count(config: bytes) -> int | None:
    try:
        known = json.loads(config or b"{}").get("known_trip_count", {}).get("n")
        return int(known) if known is not None else None
    except (ValueError, TypeError, AttributeError):
        return None


def executions(module: Module) -> Mapping[int, float]:
    """Id of each computation that control flow reaches → how often one run of the module runs it, at most.

    1 outside of loops, the product of the trip counts of all loops around it inside, infinite where one is unknown.
    """
    found: dict[int, float] = {}
    pending = [(module.entry.id, 1.0)]
    while pending:
        identifier, times = pending.pop()
        if times <= found.get(identifier, 0.0):
            continue
        found[identifier] = times
        if module.opcodes_of(identifier).isdisjoint(CONTROL_FLOW):
            continue
        for instruction in module.computations[identifier].instructions[:]:
            if instruction.opcode in CONTROL_FLOW:
                trips = trip_count(instruction) if instruction.opcode == "while" else 1
                inner = times * (math.inf if trips is None else max(trips, 1))
                pending += [(called, inner) for called in instruction.called_computation_ids[:]]
    return found
