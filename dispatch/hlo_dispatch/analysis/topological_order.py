"""A topological order of instructions that gain dependencies: Pearce and Kelly's algorithm.

A dependency that the order already satisfies costs nothing; another one moves only the instructions between its ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_dispatch.ir.schema import InstructionProto

Rank = tuple[int, int]


class TopologicalOrder:
    """A topological order of instructions, maintained while dependencies are added."""

    def __init__(self, ordered: Sequence[InstructionProto]) -> None:
        """Start from instructions in topological order."""
        self._rank: dict[int, Rank] = {proto.id: (place, 0) for place, proto in enumerate(ordered)}
        self._needs = {proto.id: [*proto.operand_ids[:], *proto.control_predecessor_ids[:]] for proto in ordered}
        self._users: dict[int, list[int]] = {identifier: [] for identifier in self._rank}
        for identifier, needs in self._needs.items():
            for earlier in needs:
                self._users[earlier].append(identifier)

    def rank(self, identifier: int) -> Rank:
        """The instruction's rank, less than those of all instructions that must run after it."""
        return self._rank[identifier]

    def insert(self, identifier: int, operand: int) -> None:
        """Add an instruction with one operand and no users."""
        # The second number grows with each: ranks differ, and this one comes after its operand's.
        self._rank[identifier] = self._rank[operand][0], len(self._rank)
        self._needs[identifier], self._users[identifier] = [operand], []
        self._users[operand].append(identifier)

    def add(self, earlier: int, later: int) -> bool:
        """Add the dependency of `later` on `earlier`; False, and no change, where it would be a cycle."""
        first, last = self._rank[later], self._rank[earlier]
        if last >= first:
            successors = self._reachable_in_range(later, self._users, first, last)
            if earlier in successors:
                return False
            moved = [*self._reachable_in_range(earlier, self._needs, first, last), *successors]
            ranks = sorted(self._rank[identifier] for identifier in moved)
            self._rank.update(zip(moved, ranks, strict=True))
        self._needs[later].append(earlier)
        self._users[earlier].append(later)
        return True

    def _reachable_in_range(
        self, start: int, edges: Mapping[int, list[int]], first: Rank, last: Rank
    ) -> dict[int, None]:
        """Instructions reachable from `start`, itself included, with ranks in this range, in order."""
        found = {start}
        pending = [start]
        while pending:
            for other in edges[pending.pop()]:
                if other not in found and first <= self._rank[other] <= last:
                    found.add(other)
                    pending.append(other)
        return dict.fromkeys(sorted(found, key=self._rank.__getitem__))
