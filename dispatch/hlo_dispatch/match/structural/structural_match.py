"""A structural match: the same interface to planning and emitting as an anchor's match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.match.strided import View
from hlo_dispatch.pattern.structure import Pattern


@dataclass(frozen=True)
class PatternAnchor:
    """What stands for the match: its result, and the kernel that computes it."""

    node: Node
    kernel: str


@dataclass(frozen=True, eq=False)
class StructuralMatch:
    """A pattern found in a flat graph, ready to become one kernel call."""

    pattern: Pattern
    output: Node
    covered: tuple[Node, ...]
    """Every instruction that the call replaces, operands before users."""
    operands: tuple[View, ...]
    bound_attributes: dict[str, Any]
    scratch_bytes: int | None
    """Working memory the pattern asks for; None: the call has one plain result."""

    @property
    def anchor(self) -> PatternAnchor:
        return PatternAnchor(self.output, self.pattern.kernel)

    @property
    def results(self) -> tuple[Node, ...]:
        """Every value that the kernel call produces."""
        return (self.output,)

    @property
    def formula(self) -> str:
        return self.pattern.formula

    @property
    def post_ops(self) -> tuple[()]:
        return ()

    @property
    def reads(self) -> tuple[Node, ...]:
        """Values that have to be in memory for this match."""
        return tuple(view.node for view in self.operands)

    @property
    def asked_for(self) -> str:
        """Why the heuristic takes it without being asked about speed; empty where it should judge."""
        if not self.pattern.is_users:
            return ""
        return f"the pattern {self.pattern.name} of your table asks for it"

    def shortened(self) -> None:
        """There is no shorter form."""

    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes."""
        return dict(self.bound_attributes)


@dataclass(frozen=True)
class Miss:
    """Where a pattern came closest to matching, for people."""

    pattern: Pattern
    matched: int
    """How many of its operations had matched."""
    node: Node
    """The instruction where it stopped."""
    why: str

    @property
    def sentence(self) -> str:
        size = max(spelling.size for spelling in self.pattern.spellings)
        return f"{self.pattern.name}: {self.matched} of {size} operations matched; {self.why}"
