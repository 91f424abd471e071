"""Attention matches: two products with a softmax between them, as one kernel call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.match.attention.steps import ScoreStep
from hlo_dispatch.match.described_view import described
from hlo_dispatch.match.match import Match
from hlo_dispatch.pattern.table import Attention, Numerics, ScoreStepKind, short

ROLES = ("query", "key", "value")


def match_of_attention(
    entry: Attention,
    exponentials: Node,
    sources: tuple[View, View, View],
    steps: tuple[ScoreStep, ...],
    destination: View,
    covered: tuple[Node, ...],
) -> Match:
    """The match of softmax(steps(q·kᵀ))·v.

    Args:
        exponentials: represents the match; the products are anchors of their own where this is left to XLA.
        sources: queries (batch…, M, D), keys (batch…, N, D), values (batch…, N, E).
        steps: their operands are (batch…, M, N).
        destination: (batch…, M, E), in the node that the call produces.
    """
    queries, keys, values = (source.dimensions for source in sources)
    operands = dict(zip(ROLES, sources, strict=True))
    operands |= {f"score_{number}": step.view for number, step in enumerate(steps) if step.view is not None}
    scores = math.prod(size for size, _ in queries[:-1]) * keys[-2][0]
    output = destination.node

    def numerics() -> Numerics:
        """For the coarsest type among operands and result."""
        kinds = {output.shape.element_type, *(source.element_type for source in sources)}
        return max((entry.numerics[kind] for kind in kinds), key=lambda numerics: numerics.tolerance)

    return Match(
        entry=entry,
        node=exponentials,
        kernels=(entry.kernel,),
        kernel=entry.kernel,
        operands=operands,
        results=(output,),
        result_shapes=(output.shape,),
        covered=covered,
        formula=_formula(entry.score_steps, steps),
        attributes=lambda: _attributes(entry.score_steps, sources, steps, destination),
        numerics=numerics,
        multiply_adds=scores * (queries[-1][0] + values[-1][0]),
    )


def _formula(kinds: Mapping[str, ScoreStepKind], steps: tuple[ScoreStep, ...]) -> str:
    text = "q·kᵀ"
    for step in steps:
        template = kinds[step.kind].formula.replace("{value}", short(step.value))
        text = template.replace("{scores}", f"({text})" if " + " in text and "·" in template else text)
    return f"softmax({text})·v"


def _attributes(
    kinds: Mapping[str, ScoreStepKind], sources: tuple[View, ...], steps: tuple[ScoreStep, ...], destination: View
) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for role, view in zip((*ROLES, "dst"), (*sources, destination), strict=True):
        attributes |= {f"{role}_{name}": value for name, value in described(view).items()}
    for number, step in enumerate(steps):
        operand = {} if step.view is None else described(step.view)
        facts = {"value": float(step.value), "distance": step.mask and step.mask.distance}
        named = {name: facts[fact] for name, fact in kinds[step.kind].attributes.items()}
        attributes[f"score_{number}"] = {"kind": step.kind, **operand, **named}
    return attributes
