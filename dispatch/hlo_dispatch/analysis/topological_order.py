"""A topological order of instructions that gain dependencies: Pearce and Kelly's algorithm.

A dependency that the order has already costs nothing; another one moves only what stands between its two ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_dispatch.ir.schema import InstructionProto

Rank = tuple[int, int]


class TopologicalOrder:
    """Instructions in an order in which they could run, kept while dependencies are added."""

    def __init__(self, ordered: Sequence[InstructionProto]) -> None:
        """Take instructions that stand in such an order already."""
        self._rank: dict[int, Rank] = {proto.id: (place, 0) for place, proto in enumerate(ordered)}
        self._needs = {proto.id: [*proto.operand_ids[:], *proto.control_predecessor_ids[:]] for proto in ordered}
        self._users: dict[int, list[int]] = {identifier: [] for identifier in self._rank}
        for identifier, needs in self._needs.items():
            for earlier in needs:
                self._users[earlier].append(identifier)

    def rank(self, identifier: int) -> Rank:
        """Less than that of everything that must run after the instruction."""
        return self._rank[identifier]

    def insert(self, identifier: int, operand: int) -> None:
        """A new instruction that reads one operand, and that nothing reads yet."""
        # The second number grows with each: ranks differ, and this one comes after its operand's.
        self._rank[identifier] = self._rank[operand][0], len(self._rank)
        self._needs[identifier], self._users[identifier] = [operand], []
        self._users[operand].append(identifier)

    def add(self, earlier: int, later: int) -> bool:
        """Have one instruction run before another; False: it must run after it, and nothing changes."""
        first, last = self._rank[later], self._rank[earlier]
        if last >= first:
            behind = self._between(later, self._users, first, last)
            if earlier in behind:
                return False
            moved = [*self._between(earlier, self._needs, first, last), *behind]
            ranks = sorted(self._rank[identifier] for identifier in moved)
            self._rank.update(zip(moved, ranks, strict=True))
        self._needs[later].append(earlier)
        self._users[earlier].append(later)
        return True

    def _between(self, start: int, edges: Mapping[int, list[int]], first: Rank, last: Rank) -> dict[int, None]:
        """What the edges lead to from `start` among those with these ranks, itself included, in order."""
        found = {start}
        pending = [start]
        while pending:
            for other in edges[pending.pop()]:
                if other not in found and first <= self._rank[other] <= last:
                    found.add(other)
                    pending.append(other)
        return dict.fromkeys(sorted(found, key=self._rank.__getitem__))
