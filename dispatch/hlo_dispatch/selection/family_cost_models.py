"""Cost models by family of matches: preferred variants, and whether a call is expected to pay.

Nothing else in the package distinguishes the families.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from hlo_dispatch.ir.opcode import MAY_BE_GLUE_OPS
from hlo_dispatch.match.attention.attention_match import AttentionMatch
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.protocol import FOLDED, FULL_MATCH, CallableMatch, Variant
from hlo_dispatch.match.routines.routine_match import RoutineMatch
from hlo_dispatch.match.structural.structural_match import StructuralMatch
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.cost_model import (
    GEMV_KERNEL,
    SMALLEST_ATTENTION,
    is_gemv,
    is_small,
    is_worth_dispatching,
    is_worth_folding,
)
from hlo_dispatch.selection.linear_algebra_cost_model import by_expected_speed, is_worth_calling_library

M = TypeVar("M", contravariant=True)


class CostModel(Protocol[M]):
    """The cost model of one family of matches."""

    def preferred_variants(self, match: M, machine: Machine | None) -> Iterator[Variant]:
        """The variants for which to query kernel support, the expected fastest first.

        Args:
            machine: orders the variants; None: the table's order.
        """
        ...

    def is_worth_calling(self, match: M, implementation: str, machine: Machine) -> tuple[bool, str]:
        """Whether a kernel is expected to beat stock XLA, and the sentence why."""
        ...

    def may_be_glue_op(self, match: M) -> bool:
        """Whether a match is small enough to be dispatched as a glue op between two calls."""
        ...


class _AnchorCostModel:
    def preferred_variants(self, match: Match, machine: Machine | None) -> Iterator[Variant]:
        """Folded scales first, where that is cheaper; the GEMV kernel for one row; then the table's order."""
        if is_worth_folding(match) and match.folded is not None:
            yield Variant(FOLDED, match.folded)
        if is_gemv(match):
            yield Variant(GEMV_KERNEL, match.with_kernel(GEMV_KERNEL))
        yield Variant(FULL_MATCH, match)
        if match.anchor.node.opcode in MAY_BE_GLUE_OPS:
            # A glue op is not measured by itself, so that only the table's order remains.
            for kernel in match.anchor.entry.alternative_kernels:
                yield Variant(kernel, match.with_kernel(kernel))

    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        return is_worth_dispatching(match, implementation, machine)

    def may_be_glue_op(self, match: Match) -> bool:
        return is_small(match)


class _PatternCostModel:
    def preferred_variants(self, match: StructuralMatch, machine: Machine | None) -> Iterator[Variant]:
        yield Variant(FULL_MATCH, match)

    def is_worth_calling(self, match: StructuralMatch, implementation: str, machine: Machine) -> tuple[bool, str]:
        """A user's pattern is dispatched without a measurement; a shipped one is not."""
        if match.requested_by_user:
            return True, match.requested_by_user
        return False, f"the pattern {match.name} was not measured on this machine"

    def may_be_glue_op(self, match: StructuralMatch) -> bool:
        return False


class _RoutineCostModel:
    def preferred_variants(self, match: RoutineMatch, machine: Machine | None) -> Iterator[Variant]:
        """The routine's kernels."""
        names = match.kernels if machine is None else by_expected_speed(match, machine)
        return (Variant(kernel, match.with_kernel(kernel)) for kernel in names)

    def is_worth_calling(self, match: RoutineMatch, implementation: str, machine: Machine) -> tuple[bool, str]:
        return is_worth_calling_library(match, machine)

    def may_be_glue_op(self, match: RoutineMatch) -> bool:
        return False


class _AttentionCostModel:
    def preferred_variants(self, match: AttentionMatch, machine: Machine | None) -> Iterator[Variant]:
        yield Variant(FULL_MATCH, match)

    def is_worth_calling(self, match: AttentionMatch, implementation: str, machine: Machine) -> tuple[bool, str]:
        """XLA materializes every score, reads it five times and transposes heads besides; it is never faster."""
        arithmetic = match.work.multiply_adds
        if arithmetic < SMALLEST_ATTENTION:
            return False, f"{arithmetic:,} multiply-adds are too few to pay for a call"
        return True, f"XLA writes {match.scores:,} scores to memory and reads them again; the kernel keeps none"

    def may_be_glue_op(self, match: AttentionMatch) -> bool:
        return False


_COST_MODELS: dict[str, CostModel[Any]] = {
    Match.family: _AnchorCostModel(),
    StructuralMatch.family: _PatternCostModel(),
    RoutineMatch.family: _RoutineCostModel(),
    AttentionMatch.family: _AttentionCostModel(),
}


def cost_model_of(match: CallableMatch) -> CostModel[Any]:
    """The cost model of the match's family."""
    return _COST_MODELS[match.family]
