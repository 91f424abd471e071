"""Which instructions must run before which: for some few targets and any instruction, in one pass."""

from __future__ import annotations

from typing import Any


class EarlierThan:
    """Which instructions must run before which of some few, found in one pass over the graph."""

    def __init__(self, protos: dict[int, Any], targets: set[int]) -> None:
        self._bit = {target: 1 << number for number, target in enumerate(targets)}
        self._before: dict[int, int] = {}
        """Instruction → the targets it runs before, a bit for each."""
        for identifier in reversed(_operands_first(protos)):
            proto = protos[identifier]
            through = self._before.get(identifier, 0) | self._bit.get(identifier, 0)
            for earlier in (*proto.operand_ids, *proto.control_predecessor_ids):
                self._before[earlier] = self._before.get(earlier, 0) | through

    def knows(self, target: int) -> bool:
        return target in self._bit

    def mask(self, target: int) -> int:
        """The target's bit, none for what is no target; masks of several are put together by `|`."""
        return self._bit.get(target, 0)

    def than_any(self, instruction: int, mask: int) -> bool:
        """Whether `instruction` must run before one of the targets in the mask."""
        return bool(self._before.get(instruction, 0) & mask)

    def than(self, instruction: int, target: int) -> bool:
        """Whether `instruction` must run before `target`."""
        return self.than_any(instruction, self.mask(target))


def _operands_first(protos: dict[int, Any]) -> list[int]:
    """The instructions in an order in which they could run; those on a cycle, if there were one, are left out."""
    waiting: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for identifier, proto in protos.items():
        needs = {*proto.operand_ids, *proto.control_predecessor_ids}
        waiting[identifier] = len(needs)
        for earlier in needs:
            users.setdefault(earlier, []).append(identifier)
    ordered = [identifier for identifier, count in waiting.items() if not count]
    for identifier in ordered:
        for user in users.get(identifier, ()):
            waiting[user] -= 1
            if not waiting[user]:
                ordered.append(user)
    return ordered
