"""What everything that can become a kernel call has: all that policy, measuring, rewriting and reports know of it.

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
"""Names of variants; the store keeps them."""


@dataclass(frozen=True)
class Work:
    """How much there is to do, roughly."""

    multiply_adds: int
    """0: nobody counts them."""
    bytes: int
    """Read and written."""
    is_streaming: bool = False
    """Whether moving the bytes says more of its time than the arithmetic does."""

    @property
    def weight(self) -> int:
        """What regions are ordered by: the more, the more depends on a good choice."""
        return self.bytes if self.is_streaming else self.multiply_adds


@dataclass(frozen=True)
class LibraryCall:
    """What measuring needs to know of a call of a library that JAX's program makes."""

    routine: Routine
    options: Mapping[str, int]
    """What the call says besides its operands."""
    destinations: tuple[tuple[Dimension, ...], ...]
    """Each result's dimensions over the buffer of its value."""


class CallableMatch(Protocol):
    """Instructions that one kernel call may replace."""

    family: ClassVar[str]
    """The table's section that it is an entry of: anchor, pattern or routine. Says which rule of thumb applies."""
    has_planned_scratch: ClassVar[bool]
    """Whether working memory, as much as the kernel's plan says, is one more result of the call."""

    @property
    def name(self) -> str:
        """The table's entry."""
        ...

    @property
    def node(self) -> Node:
        """The instruction that stands for the match in plans and reports."""
        ...

    @property
    def kernel(self) -> str:
        """The kernel that is asked."""
        ...

    @property
    def kernels(self) -> tuple[str, ...]:
        """Every kernel that could be."""
        ...

    @property
    def operands(self) -> tuple[View, ...]:
        """The kernel call's operands in order."""
        ...

    @property
    def reads(self) -> tuple[Node, ...]:
        """Values that have to be in memory, or to be computable, for this match."""
        ...

    @property
    def output(self) -> Node:
        """The first value that the call produces and somebody reads."""
        ...

    @property
    def results(self) -> tuple[Node | None, ...]:
        """Every value that the call produces; None where nobody reads it."""
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
        """Who has an instruction that several want: the highest; in general, how many the match covers."""
        ...

    @property
    def post_ops(self) -> tuple[PostOp, ...]:
        """What the kernel does with its result, a bias left out."""
        ...

    @property
    def formula(self) -> str:
        """What the call computes, for a person."""
        ...

    @property
    def work(self) -> Work:
        """How much there is to do."""
        ...

    @property
    def scratch_bytes(self) -> int | None:
        """Working memory that the table's entry asks for; None: none."""
        ...

    @property
    def library_call(self) -> LibraryCall | None:
        """The call that JAX's program makes: it is cut out alone. None: the match is made of XLA's own fusions."""
        ...

    @property
    def in_module(self) -> CallableMatch:
        """The same with instructions that the module has: a variant may be made of new ones."""
        ...

    @property
    def notes(self) -> dict[str, Any]:
        """What later rooms worked out about the match and will ask again."""
        ...

    def attributes(self) -> dict[str, Any]:
        """The kernel call's attributes, as far as they follow from the match."""
        ...

    def numerics(self) -> Numerics:
        """How exact a kernel has to be."""
        ...

    def shortened(self) -> CallableMatch | None:
        """The same match with less for the kernel to do; None: there is no less."""
        ...

    def variants(self, chosen: str, *, reorders_weights: bool) -> Iterator[Variant]:
        """Other ways to compute what this match does, most promising first.

        Args:
            chosen: the name of the variant that this one is.
            reorders_weights: whether the kernel copies its weights into another layout in every call.
        """
        ...

    def epilogue_end(self, epilogue_refusal: Refusal | None, *, details: bool) -> tuple[str, str]:
        """The instruction at which the epilogue ended, and why there; both empty where there is no epilogue.

        Args:
            cut: what the kernel said to a longer one.
            details: also say which activation came closest, which is slow.
        """
        ...


class Variant(NamedTuple):
    """One way to compute a match."""

    name: str
    match: CallableMatch
    attributes: Mapping[str, str] = MappingProxyType({})
    """Asked for besides the match's own."""
