"""Nearest miss of a structural pattern that matched nowhere."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.pattern.structure import Pattern


@dataclass(frozen=True)
class NearestMiss:
    """The nearest miss of a pattern: the deepest partial match, for people."""

    pattern: Pattern
    matched: int
    """Number of matched operations."""
    node: Node
    """The instruction that did not match."""
    template: str
    arguments: tuple[object, ...]
    """What the template is filled with; nodes give their names."""

    @property
    def why(self) -> str:
        """The reason why it did not match."""
        named = [argument.name if isinstance(argument, Node) else argument for argument in self.arguments]
        return self.template.format(*named)

    @property
    def size(self) -> int:
        """The number of operations in the pattern."""
        return max(spelling.size for spelling in self.pattern.spellings)

    @property
    def is_reported(self) -> bool:
        """Whether the report shows it: always for a user's pattern, else where more than half of it matched.

        A sum of squares, three operations, is nothing: patterns have it in common.
        """
        return self.pattern.is_user_defined or self.matched >= min(self.size, max(4, self.size // 2 + 1))

    @property
    def sentence(self) -> str:
        return f"{self.pattern.name}: {self.matched} of {self.size} operations matched; {self.why}"
