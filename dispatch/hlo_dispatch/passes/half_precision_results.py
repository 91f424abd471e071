"""Half-precision results: calls that round their result for glue ops, although XLA stores it unrounded.

A program in half precision rounds each value. XLA omits the rounding where the next op widens the value again, as a
mean or a normalization does, and then stores twice as many bytes for the other users, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.epilogue.steps import Chain, Step
from hlo_dispatch.match.match import Match

_GLUE_OPCODES = frozenset(("multiply", "reduce"))
"""Opcodes of glue ops that read a rounded result."""


def with_rounded_result(
    match: Match, glue_candidates: AbstractSet[Node], materialized: AbstractSet[Node]
) -> Match | None:
    """The match with the rounding as one more step, where only glue ops read the unrounded value.

    Args:
        glue_candidates: instructions that may become glue ops.
        materialized: values that must be in memory.
    """
    fused = match.fused
    if fused is None or match.output in materialized or match.output.shape.element_type != "f32":
        return None
    value = match.output
    roundings = [user for user in value.users if user.opcode == "convert" and user.shape.element_type in HALF_TYPES]
    if len(roundings) != 1 or len(value.users) < 2 or roundings[0].shape.strides != value.shape.strides:
        return None
    (result,) = roundings
    if any(
        user not in glue_candidates or user.opcode not in _GLUE_OPCODES for user in value.users if user is not result
    ):
        return None
    if not fused.anchor.entry.gives(result.shape.element_type):
        return None
    steps = (*fused.steps, Step((result,), (), fused.destination))
    chain = Chain(steps, None, "the value is needed in memory")
    return match.with_epilogue(replace(fused, chain=chain, step_count=len(steps)))


def readers_of_unrounded(match: Match) -> Sequence[Node]:
    """Users of the unrounded value of a match with a rounded result, besides the rounding."""
    result = match.output
    return [user for user in result.operands[0].users if user is not result]
