"""Routine matches: a library call of JAX's program that another library's kernel may compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.ir.shape import Shape
from hlo_dispatch.match.described_view import sizes_and_strides
from hlo_dispatch.match.match import LibraryCall, Match
from hlo_dispatch.pattern.table import Numerics


def match_of_call(
    call: LibraryCall,
    node: Node,
    operands: tuple[View, ...],
    results: Sequence[Node | None],
    result_shapes: Sequence[Shape],
    covered: Sequence[Node],
    *,
    symmetrised: bool = False,
) -> Match:
    """The match of a library call.

    Args:
        node: the call's instruction.
        results: the value of each result; None where it is dead.
        symmetrised: whether the kernel reads half the sum of an operand and its transpose.
    """
    routine = call.routine
    sizes, kind = operands[0].sizes, operands[0].element_type
    by_role = dict(zip(routine.operands, operands, strict=True))

    def numerics() -> Numerics:
        """The tolerance as LAPACK's own tests define it: in units of size times epsilon."""
        numerics = routine.numerics[kind]
        return replace(numerics, tolerance=numerics.tolerance * max(sizes[-2:]))

    def attributes() -> dict[str, Any]:
        destinations = (View(node, dimensions) for dimensions in call.destinations)
        views = {**by_role, **dict(zip(routine.results, destinations, strict=True))}
        attributes: dict[str, Any] = {"type": kind, **sizes_and_strides(views)}
        if "places" in by_role:
            attributes["places_type"] = by_role["places"].element_type
        return attributes | ({"symmetrised": 1} if symmetrised else {}) | dict(call.options)

    return Match(
        entry=routine,
        node=node,
        kernels=routine.kernels,
        kernel=routine.kernels[0],
        operands=by_role,
        results=tuple(results),
        result_shapes=tuple(result_shapes),
        covered=tuple(covered),
        formula=routine.formula,
        attributes=attributes,
        numerics=numerics,
        multiply_adds=math.prod(sizes) * min(sizes[-2:]),  # of a product of such matrices
        library_call=call,
    )
