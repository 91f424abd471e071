"""Routine matches: a library call of JAX's program that another library's kernel may compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.match_without_epilogue import MatchWithoutEpilogue
from hlo_dispatch.match.protocol import LibraryCall, Variant, Work
from hlo_dispatch.pattern import Routine
from hlo_dispatch.pattern.table import Numerics

Dimensions = tuple[Dimension, ...]


@dataclass(frozen=True, eq=False)
class RoutineMatch(MatchWithoutEpilogue):
    """A library call that one of the routine's kernels may compute."""

    routine: Routine
    kernel: str
    """The kernel of this variant."""
    node: Node
    """The instruction itself."""
    operands: tuple[View, ...]
    results: tuple[Node | None, ...]
    """The value of each result; None where it is dead."""
    result_shapes: tuple[Shape, ...]
    destinations: tuple[Dimensions, ...]
    """Each result's dimensions over the buffer of its value."""
    covered: tuple[Node, ...]
    symmetrised: bool
    options: dict[str, int]
    removed_copies: int
    """Number of layout copies that the call makes redundant."""

    family: ClassVar[str] = "routine"
    has_planned_scratch: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.routine.name

    @property
    def kernels(self) -> tuple[str, ...]:
        return self.routine.kernels

    @property
    def scratch_bytes(self) -> None:
        """None: the table's entry declares no scratch."""

    @property
    def precedence(self) -> int:
        return len(self.covered)

    @property
    def work(self) -> Work:
        """The multiply-adds of a product of such matrices; a transform counts by its bytes."""
        sizes, _ = self.matrix
        moved = sum(node.shape.bytes for node in (*self.reads, self.output))
        return Work(math.prod(sizes) * min(sizes[-2:]), moved, is_streaming=self.routine.opcode == "fft")

    @property
    def library_call(self) -> LibraryCall:
        return LibraryCall(self.routine, self.options, self.destinations)

    @property
    def output(self) -> Node:
        """The first result that has users; it represents the call in reports."""
        return next((result for result in self.results if result is not None), self.node)

    @property
    def formula(self) -> str:
        return self.routine.formula

    @property
    def reads(self) -> tuple[Node, ...]:
        return tuple(view.node for view in self.operands)

    @property
    def is_tuple(self) -> bool:
        """Whether the call has several results."""
        return self.node.shape.element_type == "tuple"

    @property
    def matrix(self) -> tuple[list[int], str]:
        """Sizes of the first operand (batch dimensions, rows, columns) and its element type."""
        return self.operands[0].sizes, self.operands[0].element_type

    def with_kernel(self, kernel: str) -> RoutineMatch:
        """The same match for another of the routine's kernels."""
        return replace(self, kernel=kernel)

    def variants(self, chosen: str, *, reorders_weights: bool) -> Iterator[Variant]:
        """The routine's other kernels."""
        return (Variant(kernel, self.with_kernel(kernel)) for kernel in self.kernels if kernel != chosen)

    def numerics(self) -> Numerics:
        """The tolerance as LAPACK's own tests define it: in units of size times epsilon."""
        sizes, kind = self.matrix
        numerics = self.routine.numerics[kind]
        return replace(numerics, tolerance=numerics.tolerance * max(sizes[-2:]))

    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes."""
        attributes: dict[str, Any] = {"type": self.operands[0].element_type}
        for name, view in zip(self.routine.operands, self.operands, strict=True):
            attributes[f"{name}_dims"], attributes[f"{name}_strides"] = view.sizes, view.strides
        for name, dimensions in zip(self.routine.results, self.destinations, strict=True):
            attributes[f"{name}_dims"] = [size for size, _ in dimensions]
            attributes[f"{name}_strides"] = [stride for _, stride in dimensions]
        if self.symmetrised:
            attributes["symmetrised"] = 1
        return attributes | self.options
