"""Cost models by the table's section that a match is an entry of: preferred variants, and whether a call pays.

Nothing else in the package distinguishes the sections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from hlo_dispatch.match.anchors.convolution_spec import DIRECT_CONVOLUTION_KERNEL
from hlo_dispatch.match.match import FOLDED, FULL_MATCH, Match, Variant
from hlo_dispatch.pattern.op_kinds import MAY_BE_GLUE_OPS
from hlo_dispatch.pattern.structure import Pattern
from hlo_dispatch.pattern.table import AnchorKind, Attention, Elementwise, GroupNorm, Recurrent, Routine
from hlo_dispatch.process.machine import Machine
from hlo_dispatch.selection.cost_model import (
    GEMV_KERNEL,
    SMALLEST_ATTENTION,
    is_directly_convolved,
    is_gemv,
    is_small,
    is_worth_dispatching,
    is_worth_folding,
)
from hlo_dispatch.selection.elementwise_cost_model import LEAST_NANOSECONDS_SAVED, nanoseconds_saved
from hlo_dispatch.selection.linear_algebra_cost_model import by_expected_speed, is_worth_calling_library

# `python -m bench.recurrent --policy always --lengths 64 --cells lstm24 lstm64 lstm96 lstm128 lstm256`, frozen over
# stock, 1 to 32 rows on two cores of a Xeon, jax 0.10.2 and 0.12.0.1: 0.33x to 0.75x with up to 74,000 multiply-adds
# of the state a step in 24 numbers, 0.80x to 1.48x with 16,000 to 300,000, 1.1x to 2.4x with more.
FEWEST_IN_A_STEP = 1 << 18
# XLA sums up so many elements in some ten microseconds, as many as a call and waking threads take; an estimate.
SMALLEST_GROUP_NORM = 1 << 15
# XLA compares numbers and their places one after another, the kernel by vectors. Two cores of an AMD EPYC, jax
# 0.12.0.1, stock and kernel: 0.84 and 0.06 ms for 4,096 rows of 100, 0.56 and 0.01 ms for one of 128,256, but 0.09 and
# 0.45 ms for 40,000 rows of 10.
ARGMAX_KERNEL = "own.argmax"
SHORTEST_COMPARED_ROW = 64
FEWEST_COMPARED = 1 << 13


class CostModel:
    """The cost model of one section's matches; by default one that believes in measurements only."""

    def preferred_variants(self, match: Match, machine: Machine | None) -> Iterator[Variant]:
        """The variants for which to query kernel support, the expected fastest first.

        Args:
            machine: orders the variants; None: the table's order.
        """
        yield Variant(FULL_MATCH, match)

    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        """Whether a kernel is expected to beat stock XLA, and the sentence why."""
        return False, f"the pattern {match.name} was not measured on this machine"

    def may_be_glue_op(self, match: Match) -> bool:
        """Whether a match is small enough to be dispatched as a glue op between two calls."""
        return False


class AnchorCostModel(CostModel):
    def preferred_variants(self, match: Match, machine: Machine | None) -> Iterator[Variant]:
        """Folded scales first, where that is cheaper; the GEMV kernel for one row; then the table's order."""
        if is_worth_folding(match) and match.folded is not None:
            yield Variant(FOLDED, match.folded)
        if is_gemv(match):
            yield match.variant_of(GEMV_KERNEL)
        elif is_directly_convolved(match):
            yield match.variant_of(DIRECT_CONVOLUTION_KERNEL)
        yield Variant(FULL_MATCH, match)
        if match.node.opcode in MAY_BE_GLUE_OPS:
            # A glue op is not measured by itself, so that only the table's order remains.
            yield from map(match.variant_of, match.kernels[1:])

    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        return is_worth_dispatching(match, implementation, machine)

    def may_be_glue_op(self, match: Match) -> bool:
        return is_small(match)


class _PatternCostModel(CostModel):
    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        """A user's pattern is dispatched without a measurement; of the shipped ones only argmax and argmin are."""
        if isinstance(match.entry, Pattern) and match.entry.is_user_defined:
            return True, f"the pattern {match.name} of your table requests it"
        if match.kernel == ARGMAX_KERNEL:
            elements = match.operands["src"].node.shape.elements
            row = elements // match.output.shape.elements
            if elements < FEWEST_COMPARED or row < SHORTEST_COMPARED_ROW:
                return False, f"{elements:,} numbers in rows of {row:,} are too few for a gain"
            return True, "XLA compares numbers and their places one after another; the kernel compares vectors"
        return super().is_worth_calling(match, implementation, machine)


class _RoutineCostModel(CostModel):
    def preferred_variants(self, match: Match, machine: Machine | None) -> Iterator[Variant]:
        """The routine's kernels."""
        return map(match.variant_of, match.kernels if machine is None else by_expected_speed(match, machine))

    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        return is_worth_calling_library(match, machine)


class _AttentionCostModel(CostModel):
    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        """XLA materializes every score, reads it five times and transposes heads besides; it is never faster."""
        if match.multiply_adds < SMALLEST_ATTENTION:
            return False, f"{match.multiply_adds:,} multiply-adds are too few to pay for a call"
        queries, values = match.operands["query"], match.operands["value"]
        scores = match.multiply_adds // (queries.sizes[-1] + values.sizes[-1])
        return True, f"XLA writes {scores:,} scores to memory and reads them again; the kernel keeps none"


class _RecurrentCostModel(CostModel):
    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        """XLA runs some loops of its own a step, and reads plain weights."""
        steps, rows = match.operands["src"].sizes[:2]
        multiply_adds = rows * math.prod(match.operands["weights"].sizes)
        if multiply_adds < FEWEST_IN_A_STEP:
            return False, f"a step's {multiply_adds:,} multiply-adds are too few to pay for its calls of oneDNN"
        return True, f"XLA runs {steps} steps of several loops over {rows} rows; one call computes them all"


class _GroupNormCostModel(CostModel):
    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        """XLA sums up groups element by element, twice."""
        elements = match.output.shape.elements
        if elements < SMALLEST_GROUP_NORM:
            return False, f"{elements:,} elements are too few to pay for a call"
        return True, "XLA reads the array for each sum, and once more to normalize it; the kernel reads it twice in all"


class _ElementwiseCostModel(CostModel):
    def is_worth_calling(self, match: Match, implementation: str, machine: Machine) -> tuple[bool, str]:
        """XLA calls a function for each number; other instructions cost the kernel more, since it reads and writes its
        blocks for each."""
        elements = match.output.shape.elements
        saved = sum(nanoseconds_saved(node) for node in match.covered) * elements
        if saved < LEAST_NANOSECONDS_SAVED:
            return False, f"what vectors save on {elements:,} elements does not pay for a call"
        return True, f"XLA computes these functions number by number, the kernel in vectors, {elements:,} times"


_COST_MODELS: dict[type[Any], CostModel] = {
    AnchorKind: AnchorCostModel(),
    Pattern: _PatternCostModel(),
    Routine: _RoutineCostModel(),
    Attention: _AttentionCostModel(),
    Recurrent: _RecurrentCostModel(),
    GroupNorm: _GroupNormCostModel(),
    Elementwise: _ElementwiseCostModel(),
}


def cost_model_of(match: Match) -> CostModel:
    """The cost model of the match's section."""
    return _COST_MODELS[type(match.entry)]
