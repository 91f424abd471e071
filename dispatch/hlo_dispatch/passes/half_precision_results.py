"""Calls that give their result rounded to half precision although XLA keeps it as it was, for links that read it so.

A program in half precision rounds each value. XLA leaves that out where it widens the value again at once, as a mean
or a normalization does, and so writes twice as much for the others, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import HALF_TYPES
from hlo_dispatch.match.epilogue.steps import Chain, Step
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.protocol import CallableMatch

_LINKS = frozenset(("multiply", "reduce"))
"""Which ones read a value as a call gives it."""


def rounded(match: CallableMatch, links: AbstractSet[Node], needed: AbstractSet[Node]) -> Match | None:
    """The match with the rounding of its result as one more step, where nothing but links reads the value unrounded.

    Args:
        links: instructions that may be dispatched between calls.
        needed: values that have to be in memory.
    """
    if not isinstance(match, Match) or match.output in needed or match.output.shape.element_type != "f32":
        return None
    value = match.output
    roundings = [user for user in value.users if user.opcode == "convert" and user.shape.element_type in HALF_TYPES]
    if len(roundings) != 1 or len(value.users) < 2 or roundings[0].shape.strides != value.shape.strides:
        return None
    (result,) = roundings
    if any(user not in links or user.opcode not in _LINKS for user in value.users if user is not result):
        return None
    if not match.anchor.entry.gives(result.shape.element_type):
        return None
    steps = (*match.steps, Step((result,), (), match.destination))
    return replace(match, chain=Chain(steps, None, "the value is needed in memory"), taken=len(steps))


def readers_of_unrounded(match: Match) -> Sequence[Node]:
    """What reads the value that such a match rounds."""
    (result,) = match.steps[-1].nodes
    return [user for user in result.operands[0].users if user is not result]
