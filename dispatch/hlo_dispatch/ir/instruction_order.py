"""Topological order of an edited computation, as close to the original order as possible."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from hlo_dispatch.ir.schema import InstructionProto


def in_order(
    protos: Mapping[int, InstructionProto],
    original_order: Sequence[int],
    preferred_predecessors: Mapping[int, AbstractSet[int]] | None = None,
) -> list[InstructionProto]:
    """Topological order, as close to the original order as possible.

    Args:
        protos: the computation's instructions by id.
        original_order: their ids in the order of their positions.
        preferred_predecessors: id → ids of instructions that should precede it, too, wherever that is possible.
    """
    needs = {i: {*protos[i].operand_ids[:], *protos[i].control_predecessor_ids[:]} for i in original_order}
    count = len(needs)
    position = {identifier: place for place, identifier in enumerate(original_order)}
    (waiting, users), (unmet_preferences, preferred_successors) = (
        _counted(needs),
        _counted(preferred_predecessors or {}),
    )
    # An instruction with an unmet preference comes when no other one is ready, behind all places.
    ready = [position[i] + count * (unmet_preferences.get(i, 0) > 0) for i, missing in waiting.items() if not missing]
    heapq.heapify(ready)
    ordered: dict[int, InstructionProto] = {}
    while ready:
        identifier = original_order[heapq.heappop(ready) % count]
        if identifier in ordered:
            continue
        ordered[identifier] = protos[identifier]
        for counts, others in ((waiting, users), (unmet_preferences, preferred_successors)):
            for other in others.get(identifier, ()):
                counts[other] -= 1
                if not waiting[other]:
                    heapq.heappush(ready, position[other] + count * (unmet_preferences.get(other, 0) > 0))
    if len(ordered) != len(protos):
        raise AssertionError("the edited computation has a cycle")
    return list(ordered.values())


def _counted(before: Mapping[int, AbstractSet[int]]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """(number of predecessors by id, successors by id)."""
    after: dict[int, list[int]] = {}
    for identifier, others in before.items():
        for other in others:
            after.setdefault(other, []).append(identifier)
    return {identifier: len(others) for identifier, others in before.items()}, after
