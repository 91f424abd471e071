"""Which instructions a rebuilt computation still needs, and in what order they stand."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

# Instructions that nothing misses when nobody reads them.
from hlo_dispatch.ir.schema import InstructionProto

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


def in_order(
    protos: Mapping[int, InstructionProto],
    place: Mapping[int, int],
    wishes: Mapping[int, AbstractSet[int]] | None = None,
) -> list[InstructionProto]:
    """Operands and control predecessors before users, otherwise as near to the original order as can be.

    Args:
        protos: the computation's instructions by id.
        place: id → position in the original order that the instruction should stand near.
        wishes: id → ids of the instructions that should come before it, too, wherever that is possible.
    """
    position = {identifier: (place[identifier], identifier) for identifier in protos}
    straight = [protos[identifier] for _, identifier in sorted(position.values())]
    if not wishes and _is_ordered(straight):
        return straight
    needs = {i: {*proto.operand_ids[:], *proto.control_predecessor_ids[:]} for i, proto in protos.items()}
    (waiting, users), (wishing, wished) = _counted(needs), _counted(wishes or {})
    # One that still wishes for something comes when nothing else can.
    ready = [(wishing.get(i, 0) > 0, position[i]) for i, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered: dict[int, InstructionProto] = {}
    while ready:
        _, (_, identifier) = heapq.heappop(ready)
        if identifier in ordered:
            continue
        ordered[identifier] = protos[identifier]
        for counts, others in ((waiting, users), (wishing, wished)):
            for other in others.get(identifier, ()):
                counts[other] -= 1
                if not waiting[other]:
                    heapq.heappush(ready, (wishing.get(other, 0) > 0, position[other]))
    if len(ordered) != len(protos):
        raise AssertionError("the rebuilt computation has a cycle")
    return list(ordered.values())


def _counted(before: Mapping[int, AbstractSet[int]]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """How many come before each; and what each comes before."""
    after: dict[int, list[int]] = {}
    for identifier, others in before.items():
        for other in others:
            after.setdefault(other, []).append(identifier)
    return {identifier: len(others) for identifier, others in before.items()}, after


def _is_ordered(protos: Sequence[InstructionProto]) -> bool:
    seen: set[int] = set()
    for proto in protos:
        if not seen.issuperset(proto.operand_ids[:]) or not seen.issuperset(proto.control_predecessor_ids[:]):
            return False
        seen.add(proto.id)
    return True
