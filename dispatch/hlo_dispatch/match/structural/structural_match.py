"""Structural matches: a pattern of the table found in a graph, and the nearest miss of one that was not."""

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
    """Scratch bytes that the pattern declares; None: the call has a single result."""

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
        """The author's priority, where the pattern declares one; else the number of covered instructions."""
        return self.pattern.priority if self.pattern.has_explicit_priority else len(self.covered)

    @property
    def work(self) -> Work:
        """Bytes only: the arithmetic of an expression is unknown."""
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
        """Operand values, which must be in memory."""
        return tuple(view.node for view in self.operands)

    @property
    def requested_by_user(self) -> str:
        """The reason to dispatch without a measurement; empty: the cost model decides."""
        if not self.pattern.is_user_defined:
            return ""
        return f"the pattern {self.pattern.name} of your table requests it"

    def numerics(self) -> Numerics:
        """The pattern's tolerance for the result's type."""
        return self.pattern.numerics[self.output.shape.element_type]

    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes."""
        return dict(self.bound_attributes)


@dataclass(frozen=True)
class NearestMiss:
    """The nearest miss of a pattern: the deepest partial match, for people."""

    pattern: Pattern
    matched: int
    """Number of matched operations."""
    node: Node
    """The instruction that did not match."""
    why: str

    family: ClassVar[str] = StructuralMatch.family

    @property
    def size(self) -> int:
        """The number of operations in the pattern."""
        return max(spelling.size for spelling in self.pattern.spellings)

    @property
    def is_reported(self) -> bool:
        """Whether the report shows it: always for a user's pattern, else where more than half of it matched."""
        return self.pattern.is_user_defined or 2 * self.matched > self.size

    @property
    def sentence(self) -> str:
        return f"{self.pattern.name}: {self.matched} of {self.size} operations matched; {self.why}"
