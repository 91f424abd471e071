"""A structural match: a pattern of the table found in a graph, and where one came closest to matching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.match_without_epilogue import MatchWithoutEpilogue
from hlo_dispatch.match.protocol import Work
from hlo_dispatch.pattern.structure import Pattern
from hlo_dispatch.pattern.table import Numerics


@dataclass(frozen=True, eq=False)
class StructuralMatch(MatchWithoutEpilogue):
    """A pattern found in a flat graph, ready to become one kernel call."""

    pattern: Pattern
    output: Node
    covered: tuple[Node, ...]
    """Every instruction that the call replaces, operands before users."""
    operands: tuple[View, ...]
    bound_attributes: dict[str, Any]
    scratch_bytes: int | None
    """Working memory the pattern asks for; None: the call has one plain result."""

    family: ClassVar[str] = "pattern"
    has_planned_scratch: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.pattern.name

    @property
    def node(self) -> Node:
        return self.output

    @property
    def kernel(self) -> str:
        return self.pattern.kernel

    @property
    def kernels(self) -> tuple[str]:
        return (self.pattern.kernel,)

    @property
    def precedence(self) -> int:
        """The author's priority, where there is one."""
        return self.pattern.priority if self.pattern.has_explicit_priority else len(self.covered)

    @property
    def work(self) -> Work:
        """Nobody knows how much arithmetic an expression is."""
        return Work(0, sum(node.shape.bytes for node in (*self.reads, self.output)), is_streaming=True)

    @property
    def results(self) -> tuple[Node, ...]:
        """Every value that the kernel call produces."""
        return (self.output,)

    @property
    def result_shapes(self) -> tuple[Shape]:
        return (self.output.shape,)

    @property
    def formula(self) -> str:
        return self.pattern.formula

    @property
    def reads(self) -> tuple[Node, ...]:
        """Values that have to be in memory for this match."""
        return tuple(view.node for view in self.operands)

    @property
    def requested_by_user(self) -> str:
        """Why the heuristic takes it without being asked about speed; empty where it should judge."""
        if not self.pattern.is_user_defined:
            return ""
        return f"the pattern {self.pattern.name} of your table asks for it"

    def numerics(self) -> Numerics:
        """As the pattern says of its result's type."""
        return self.pattern.numerics[self.output.shape.element_type]

    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes."""
        return dict(self.bound_attributes)


@dataclass(frozen=True)
class NearestMiss:
    """Where a pattern came closest to matching, for people."""

    pattern: Pattern
    matched: int
    """How many of its operations had matched."""
    node: Node
    """The instruction where it stopped."""
    why: str

    family: ClassVar[str] = StructuralMatch.family

    @property
    def size(self) -> int:
        """How many operations the pattern has."""
        return max(spelling.size for spelling in self.pattern.spellings)

    @property
    def is_reported(self) -> bool:
        """Whether anybody wants to know: whose pattern it is does, others where most of it is there."""
        return self.pattern.is_user_defined or 2 * self.matched > self.size

    @property
    def sentence(self) -> str:
        return f"{self.pattern.name}: {self.matched} of {self.size} operations matched; {self.why}"
