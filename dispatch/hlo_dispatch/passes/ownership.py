"""Ownership of instructions by matches while one computation is planned: conflicts and unmaterialized operands."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from copy import copy

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.match.match import Match


class RecordedMembership:
    """Membership in a set, a predicate that records what it is asked; native code asks the sets themselves."""

    __slots__ = ("asked", "members")

    def __init__(self, members: AbstractSet[Node], asked: set[Node]) -> None:
        self.members, self.asked = members, asked

    def __call__(self, node: Node) -> bool:
        self.asked.add(node)
        return node in self.members


class InstructionOwnership:
    """The instructions that dispatched matches own, and the values that must be materialized for them."""

    def __init__(self, root: Node) -> None:
        self.owned: set[Node] = set()
        # A call's operands must be in memory, also where converts or transposes were peeled.
        self.materialized: set[Node] = {root}
        self._results: set[Node] = set()

    def copy(self) -> InstructionOwnership:
        """A copy for tentative planning."""
        other = copy(self)
        other.owned, other.materialized, other._results = set(self.owned), set(self.materialized), set(self._results)
        return other

    def acquire(self, match: Match) -> None:
        """Give the match, which becomes a kernel call, its instructions."""
        self.owned.update(match.covered)
        self._results.update(result for result in match.results if result is not None)
        self.materialized.update(match.reads)

    def extend(self, match: Match, longer: Match) -> None:
        """Replace `match`, which owns its instructions, by a longer match that begins with the same steps."""
        self._results.difference_update(result for result in match.results if result is not None)
        self.acquire(longer)

    def unmaterialized_operand(self, match: Match) -> Node | None:
        """An operand of `match` that is never in memory, because another match fuses it."""
        return next((node for node in match.reads if node in self.owned and node not in self._results), None)

    def conflict(self, match: Match) -> Node | None:
        """An instruction of `match` that another match owns or reads."""
        owned = next((node for node in match.covered if node in self.owned), None)
        if owned is not None:
            return owned
        return next((node for node in match.covered if node in self.materialized and node not in match.results), None)
