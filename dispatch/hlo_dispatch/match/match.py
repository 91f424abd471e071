"""Matches: instructions of one computation that one kernel call may replace.

All that selection, autotuning, passes and reports know of a match. Anchors with their epilogue (fused_anchor.py),
attention (attention/), patterns (structural/) and library calls (routines/) differ in the values of these fields only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import Dimension, View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.epilogue.folding import fold
from hlo_dispatch.match.equal_matches import Facts
from hlo_dispatch.match.fused_anchor import FusedAnchor
from hlo_dispatch.pattern.structure import Pattern
from hlo_dispatch.pattern.table import AnchorKind, Attention, Elementwise, GroupNorm, Numerics, Recurrent, Routine

FULL_MATCH, FOLDED = "whole", "folded"
PREPACKED, PLAIN_WEIGHTS = ", weights packed", ", weights plain"
SHORTER, BARE = "one step less", "bare"
"""Names of variants, as the store keeps them."""


@dataclass(frozen=True)
class LibraryCall:
    """A library call of JAX's program, which a match replaces as a whole."""

    routine: Routine
    options: Mapping[str, int]
    """Options of the call besides its operands."""
    destinations: tuple[tuple[Dimension, ...], ...]
    """Each result's dimensions over the buffer of its value."""
    removed_copies: int
    """Number of layout copies that the kernel call makes redundant."""


@dataclass(frozen=True, eq=False)
class Match:
    """Instructions that one kernel call may replace, ready to become that call."""

    entry: AnchorKind | Attention | Elementwise | GroupNorm | Pattern | Recurrent | Routine
    """The table's entry."""
    node: Node
    """The instruction that represents the match in plans and reports."""
    kernels: tuple[str, ...]
    """All alternative kernels, the preferred one first."""
    kernel: str
    """The kernel of this variant."""
    operands: Mapping[str, View]
    """The kernel call's operands by their roles, in order."""
    results: tuple[Node | None, ...]
    """Every result of the call; None where a result is dead."""
    result_shapes: tuple[Shape, ...]
    covered: tuple[Node, ...]
    """Every instruction that the call replaces."""
    formula: str
    """The formula of the call, for people."""
    attributes: Callable[[], dict[str, Any]]
    """The kernel call's attributes, as far as they follow from the match."""
    numerics: Callable[[], Numerics]
    """The tolerance of the kernel's results."""
    multiply_adds: int = 0
    """0: unknown."""
    scratch_bytes: int | None = None
    """Scratch bytes that the table's entry declares; None: no scratch."""
    library_call: LibraryCall | None = None
    """The library call of JAX's program that it replaces; None: it replaces parts of XLA's fusions."""
    extra_reads: tuple[Node, ...] = ()
    """Values from which operands are computed that the module does not have yet."""
    fused: FusedAnchor | None = None
    """The anchor op and its epilogue; None: a kernel computes all of the match or nothing."""
    unfolded: Match | None = field(default=None, repr=False)
    """The same match with unfolded scales, where this one has them in the weights."""
    output: Node = field(init=False, repr=False)
    """The first result of the call that has users."""
    reads: tuple[Node, ...] = field(init=False, repr=False)
    """Operand values, which must be in memory or computable."""

    def __post_init__(self) -> None:
        output = next((result for result in self.results if result is not None), self.node)
        reads = (*[view.node for view in self.operands.values()], *self.extra_reads)
        self.__dict__.update(output=output, reads=reads)

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def anchor(self) -> Anchor:
        """The anchor op of a match that has one."""
        assert self.fused is not None, f"{self.name} is no anchor"
        return self.fused.anchor

    def read_nodes(self) -> None:
        """Read all that the kernel call depends on, so that a recorded walk has read it."""
        self.attributes()
        self.numerics()

    @cached_property
    def facts(self) -> Facts:
        """What is known of matches that ask for the same kernel call; of a match without a fused anchor, of those that
        a memo made of it."""
        return {} if self.fused is None else self.fused.facts.setdefault(self.kernel, {})

    @property
    def has_static_weights(self) -> bool:
        """Whether the weights of its anchor op are static."""
        return self.fused is not None and self.fused.has_static_weights

    @property
    def precedence(self) -> int:
        """The rank that resolves conflicts: the highest match owns an instruction. The number of covered instructions,
        or what a pattern's author wrote.
        """
        entry = self.entry
        return entry.priority if isinstance(entry, Pattern) and entry.has_explicit_priority else len(self.covered)

    @property
    def has_planned_scratch(self) -> bool:
        """Whether working memory, as much as the kernel's plan says, is one more result of the call."""
        return self.library_call is None

    @property
    def in_module(self) -> Match:
        """The same match with instructions of the module only: folded scales are instructions that it has not yet."""
        return self.unfolded or self

    @cached_property
    def folded(self) -> Match | None:
        """The same match with its per-channel scales folded into the weights; None: there is nothing to fold."""
        found = None if self.fused is None else fold(self.fused)
        return None if found is None else self.with_epilogue(found, unfolded=self)

    def with_kernel(self, kernel: str) -> Match:
        """The same match for another of its kernels."""
        return replace(self, kernel=kernel)

    def with_epilogue(self, fused: FusedAnchor, unfolded: Match | None = None) -> Match:
        """The match of the same anchor op with another epilogue."""
        return match_of_anchor(fused, self.kernel, unfolded or self.unfolded)

    def shortened(self) -> Match | None:
        """The same match with a shorter epilogue; None: it has none."""
        shorter = None if self.fused is None else self.fused.shortened()
        return None if shorter is None else self.with_epilogue(shorter)

    def variants(self, chosen: str, *, reorders_weights: bool) -> Iterator[Variant]:
        """Other variants of this match, most promising first: alternative kernels, scales folded or not, weights
        prepacked or plain, and shorter epilogues.

        Args:
            chosen: the name of this variant.
            reorders_weights: whether the kernel reorders its weights in every call.
        """
        for kernel in self.kernels:
            if kernel == self.kernel:
                continue
            yield self.variant_of(kernel)
            if self.has_static_weights and kernel != self.kernels[0]:
                # Prepacked or read in place: both variants are compared.
                yield Variant(kernel + PLAIN_WEIGHTS, self.with_kernel(kernel), {"weights_format": "plain"})
        if self.fused is None:
            return
        if self.unfolded is not None:
            yield Variant(FULL_MATCH, self.unfolded)
        elif self.folded is not None:
            yield Variant(FOLDED, self.folded)
        if "weights_type" in self.fused.attributes:
            suffix, weights_format = (PLAIN_WEIGHTS, "plain") if reorders_weights else (PREPACKED, "any")
            yield Variant(chosen + suffix, self, {"weights_format": weights_format})
        shorter = self.fused.shortened()
        if shorter is not None and self.fused.step_count:
            # Folded scales cannot be left out.
            whole = self.in_module
            assert whole.fused is not None, "it has the same anchor"
            yield Variant(BARE, whole.with_epilogue(replace(whole.fused, step_count=0)))
            if shorter.step_count > 0:
                yield Variant(SHORTER, self.with_epilogue(shorter))

    def variant_of(self, kernel: str) -> Variant:
        """The variant for one of the kernels. A library call has no preferred one, so that each has its own name."""
        is_preferred = kernel == self.kernels[0] and self.library_call is None
        return Variant(FULL_MATCH if is_preferred else kernel, self.with_kernel(kernel))

    def epilogue_end(self, epilogue_refusal: Refusal | None, *, details: bool) -> tuple[str, str]:
        """The instruction at which the epilogue ended, and the reason; both empty where there is no epilogue.

        Args:
            epilogue_refusal: the kernel's refusal of a longer epilogue.
            details: include the nearest activation, which is slow.
        """
        return ("", "") if self.fused is None else self.fused.epilogue_end(epilogue_refusal, details=details)


class Variant(NamedTuple):
    """One variant: a match, which may be shortened or rewritten, and attributes to request besides."""

    name: str
    match: Match
    attributes: Mapping[str, str] = MappingProxyType({})
    """Requested besides the match's own."""


def match_of_anchor(fused: FusedAnchor, kernel: str = "", unfolded: Match | None = None) -> Match:
    """The match of an anchor op with the steps of its epilogue; without a name, for the preferred kernel."""
    anchor, output = fused.anchor, fused.output
    alternatives = anchor.alternative_kernels

    def numerics() -> Numerics:
        """For the source's type, the result's type, or f32 where the result is rounded to integers."""
        by_type = anchor.entry.numerics
        kinds = (anchor.source.element_type, output.shape.element_type, "f32")
        return next(by_type[kind] for kind in kinds if kind in by_type)

    return Match(
        entry=anchor.entry,
        node=anchor.node,
        kernels=(anchor.kernel, *(anchor.entry.alternative_kernels if alternatives is None else alternatives)),
        kernel=kernel or anchor.kernel,
        operands=fused.operands,
        results=(output,),
        result_shapes=(output.shape,),
        covered=fused.covered,
        formula=fused.formula,
        attributes=lambda: dict(fused.attributes),
        numerics=numerics,
        multiply_adds=anchor.multiply_adds,
        extra_reads=fused.extra_reads,
        fused=fused,
        unfolded=unfolded,
    )
