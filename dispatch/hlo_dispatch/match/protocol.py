"""The match interface: everything that selection, autotuning, passes and reports know of a match.

A family of matches is a class with these members: an anchor with its epilogue (match.py), a pattern
(structural/structural_match.py), a library call (routines/routine.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.pattern import Routine
from hlo_dispatch.pattern.table import Numerics

FULL_MATCH, FOLDED = "whole", "folded"
PREPACKED, PLAIN_WEIGHTS = ", weights packed", ", weights plain"
SHORTER, BARE = "one step less", "bare"
"""Names of variants, as the store keeps them."""


@dataclass(frozen=True)
class Work:
    """Estimated amount of work."""

    multiply_adds: int
    """0: unknown."""
    bytes: int
    """Read and written."""
    is_streaming: bool = False
    """Whether moving the bytes says more of its time than the arithmetic does."""

    @property
    def weight(self) -> int:
        """Sort key of regions: the larger, the more time depends on a good choice."""
        return self.bytes if self.is_streaming else self.multiply_adds


@dataclass(frozen=True)
class LibraryCall:
    """A library call of JAX's program, as far as measuring needs to know it."""

    routine: Routine
    options: Mapping[str, int]
    """Options of the call besides its operands."""
    destinations: tuple[tuple[Dimension, ...], ...]
    """Each result's dimensions over the buffer of its value."""


class CallableMatch(Protocol):
    """Instructions that one kernel call may replace."""

    family: ClassVar[str]
    """The table's section that it is an entry of: anchor, pattern or routine. Selects the cost model."""
    has_planned_scratch: ClassVar[bool]
    """Whether working memory, as much as the kernel's plan says, is one more result of the call."""

    @property
    def name(self) -> str:
        """The name of the table's entry."""
        ...

    @property
    def node(self) -> Node:
        """The instruction that represents the match in plans and reports."""
        ...

    @property
    def kernel(self) -> str:
        """The kernel of this variant."""
        ...

    @property
    def kernels(self) -> tuple[str, ...]:
        """All alternative kernels, the preferred one first."""
        ...

    @property
    def operands(self) -> tuple[View, ...]:
        """The kernel call's operands in order."""
        ...

    @property
    def reads(self) -> tuple[Node, ...]:
        """Operand values, which must be in memory or computable."""
        ...

    @property
    def output(self) -> Node:
        """The first result of the call that has users."""
        ...

    @property
    def results(self) -> tuple[Node | None, ...]:
        """Every result of the call; None where a result is dead."""
        ...

    @property
    def result_shapes(self) -> tuple[Shape, ...]:
        """Shapes of `results`."""
        ...

    @property
    def covered(self) -> tuple[Node, ...]:
        """Every instruction that the call replaces."""
        ...

    @property
    def precedence(self) -> int:
        """The rank that resolves conflicts: the highest match owns an instruction. Usually the number of covered
        instructions.
        """
        ...

    @property
    def post_ops(self) -> tuple[PostOp, ...]:
        """The kernel's post-ops, without a bias."""
        ...

    @property
    def formula(self) -> str:
        """The formula of the call, for people."""
        ...

    @property
    def work(self) -> Work:
        """The estimated work."""
        ...

    @property
    def scratch_bytes(self) -> int | None:
        """Scratch bytes that the table's entry declares; None: no scratch."""
        ...

    @property
    def library_call(self) -> LibraryCall | None:
        """The library call of JAX's program that the match replaces; None: it replaces parts of XLA's fusions."""
        ...

    @property
    def in_module(self) -> CallableMatch:
        """The same match with instructions of the module only: a variant may contain new ones."""
        ...

    @property
    def derived_results(self) -> dict[str, Any]:
        """Cache of results that later packages derive from the match."""
        ...

    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes, as far as they follow from the match."""
        ...

    def numerics(self) -> Numerics:
        """The tolerance of the kernel's results."""
        ...

    def shortened(self) -> CallableMatch | None:
        """The same match with a shorter epilogue; None: it has none."""
        ...

    def variants(self, chosen: str, *, reorders_weights: bool) -> Iterator[Variant]:
        """Other variants of this match, most promising first.

        Args:
            chosen: the name of this variant.
            reorders_weights: whether the kernel reorders its weights in every call.
        """
        ...

    def epilogue_end(self, epilogue_refusal: Refusal | None, *, details: bool) -> tuple[str, str]:
        """The instruction at which the epilogue ended, and the reason; both empty where there is no epilogue.

        Args:
            epilogue_refusal: the kernel's refusal of a longer epilogue.
            details: include the nearest activation, which is slow.
        """
        ...


class Variant(NamedTuple):
    """One variant: a match, which may be shortened or rewritten, and attributes to request besides."""

    name: str
    match: CallableMatch
    attributes: Mapping[str, str] = MappingProxyType({})
    """Requested besides the match's own."""
