"""Reachability: whether an instruction must run before one of a few targets, computed in one pass over the graph."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any


class ReachabilityMap:
    """Which instructions must run before which of the targets."""

    def __init__(self, protos: Mapping[int, Any], targets: set[int]) -> None:
        self._bit = {target: 1 << number for number, target in enumerate(targets)}
        self._before: dict[int, int] = {}
        """Instruction → bit mask of the targets that it must run before; none where it need not."""
        needs = {i: {*proto.operand_ids[:], *proto.control_predecessor_ids[:]} for i, proto in protos.items()}
        for identifier in reversed(_operands_first(needs)):
            if reachable := self._before.get(identifier, 0) | self._bit.get(identifier, 0):
                for earlier in needs[identifier]:
                    self._before[earlier] = self._before.get(earlier, 0) | reachable

    def is_target(self, target: int) -> bool:
        return target in self._bit

    def target_mask(self, target: int) -> int:
        """Bit mask of one target, 0 if it is none; `|` combines masks."""
        return self._bit.get(target, 0)

    def reaches_any(self, instruction: int, target_mask: int) -> bool:
        """Whether `instruction` must run before one of the targets in the mask."""
        return bool(self._before.get(instruction, 0) & target_mask)

    def reaches(self, instruction: int, target: int) -> bool:
        """Whether `instruction` must run before `target`."""
        return self.reaches_any(instruction, self.target_mask(target))


def ancestors(protos: Mapping[int, Any], identifier: int) -> set[int]:
    """All instructions that must run before the instruction."""
    known = set[int]()
    pending = [identifier]
    while pending:
        proto = protos[pending.pop()]
        for earlier in (*proto.operand_ids[:], *proto.control_predecessor_ids[:]):
            if earlier not in known:
                known.add(earlier)
                pending.append(earlier)
    return known


def _operands_first(needs: Mapping[int, AbstractSet[int]]) -> list[int]:
    """The instructions in topological order, without those on a cycle."""
    waiting = {identifier: len(earlier) for identifier, earlier in needs.items()}
    users: dict[int, list[int]] = {}
    for identifier, before in needs.items():
        for earlier in before:
            users.setdefault(earlier, []).append(identifier)
    ordered = [identifier for identifier, count in waiting.items() if not count]
    for identifier in ordered:
        for user in users.get(identifier, ()):
            waiting[user] -= 1
            if not waiting[user]:
                ordered.append(user)
    return ordered
