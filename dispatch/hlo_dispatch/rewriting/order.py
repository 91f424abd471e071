"""Which instructions a rebuilt computation still needs, and in what order they stand."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

# Instructions that nothing misses when nobody reads them.
from hlo_dispatch.hlo.schema import InstructionProto

_VALUES_ONLY = frozenset(("bitcast", "constant", "fusion"))


def needed(
    kept: Sequence[InstructionProto], created: Sequence[InstructionProto], root_id: int
) -> list[InstructionProto]:
    """Those of the `kept` instructions that something reads or waits for, or that may do more than compute.

    Args:
        kept: operands before users.
    """
    found = {root_id}
    for proto in created:
        found.update(proto.operand_ids[:])
        found.update(proto.control_predecessor_ids[:])
    for proto in reversed(kept):
        if proto.id in found or proto.opcode not in _VALUES_ONLY:
            found.add(proto.id)
            found.update(proto.operand_ids[:])
            found.update(proto.control_predecessor_ids[:])
    return [proto for proto in kept if proto.id in found]


def made_of(instructions: Sequence[InstructionProto], root_id: int) -> list[InstructionProto]:
    """Those of the instructions that the root is made of.

    Args:
        instructions: operands before users.
    """
    found = {root_id}
    for proto in reversed(instructions):
        if proto.id in found:
            found.update(proto.operand_ids[:])
            found.update(proto.control_predecessor_ids[:])
    return [proto for proto in instructions if proto.id in found]


def in_order(protos: Mapping[int, InstructionProto], place: Mapping[int, int]) -> list[InstructionProto]:
    """Operands and control predecessors before users, otherwise as near to the original order as can be.

    Args:
        protos: the computation's instructions by id.
        place: id → position in the original order that the instruction should stand near.
    """
    position = {identifier: (place[identifier], identifier) for identifier in protos}
    straight = [protos[identifier] for _, identifier in sorted(position.values())]
    if _is_ordered(straight):
        return straight
    waiting: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for identifier, proto in protos.items():
        needs = {*proto.operand_ids[:], *proto.control_predecessor_ids[:]}
        waiting[identifier] = len(needs)
        for operand in needs:
            users.setdefault(operand, []).append(identifier)
    ready = [position[identifier] for identifier, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered: list[InstructionProto] = []
    while ready:
        _, identifier = heapq.heappop(ready)
        ordered.append(protos[identifier])
        for user in users.get(identifier, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, position[user])
    if len(ordered) != len(protos):
        raise AssertionError("the rebuilt computation has a cycle")
    return ordered


def _is_ordered(protos: Sequence[InstructionProto]) -> bool:
    seen: set[int] = set()
    for proto in protos:
        if not seen.issuperset(proto.operand_ids[:]) or not seen.issuperset(proto.control_predecessor_ids[:]):
            return False
        seen.add(proto.id)
    return True
