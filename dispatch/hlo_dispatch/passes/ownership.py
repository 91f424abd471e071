"""Which instructions are spoken for while one computation is planned."""

from __future__ import annotations

from copy import copy

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.match.protocol import CallableMatch


class Claims:
    """What the dispatched matches cover, and what has to be in memory for them."""

    def __init__(self, root: Node) -> None:
        self.taken: set[Node] = set()
        # What a call reads has to be in memory, also where the call reads past a convert or a transpose.
        self.needed: set[Node] = {root}
        self._results: set[Node] = set()

    def copy(self) -> Claims:
        """The same claims, to go on from on trial."""
        other = copy(self)
        other.taken, other.needed, other._results = set(self.taken), set(self.needed), set(self._results)
        return other

    def claim(self, match: CallableMatch) -> None:
        """`match` will become a kernel call."""
        self.taken.update(match.covered)
        self._results.update(result for result in match.results if result is not None)
        self.needed.update(match.reads)

    def exchange(self, match: CallableMatch, longer: CallableMatch) -> None:
        """`longer` in the place of `match`, which was claimed and whose steps it begins with."""
        self._results.difference_update(result for result in match.results if result is not None)
        self.claim(longer)

    def hide(self, match: CallableMatch) -> Node | None:
        """An operand of `match` that will never be in memory, because another match computes past it."""
        return next((node for node in match.reads if node in self.taken and node not in self._results), None)

    def obstruct(self, match: CallableMatch) -> Node | None:
        """An instruction of `match` that is spoken for, or that another match reads."""
        taken = next((node for node in match.covered if node in self.taken), None)
        if taken is not None:
            return taken
        return next((node for node in match.covered if node in self.needed and node not in match.results), None)
