"""Counts of indices, as jnp.bincount and jnp.histogram have them: ones that a scatter adds up from zeros on."""

from __future__ import annotations

from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, full_view
from hlo_dispatch.match.described_view import sizes_and_strides
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.reduction import applied_by
from hlo_dispatch.match.routines.sparse_product import Indices, count_entries, covered_by, read_indices
from hlo_dispatch.pattern import Routine
from hlo_dispatch.pattern.constraints import is_row_major

_FIRST = 2
"""What indices below 0 are, as the kernel's attribute says it: the first place; 1: they count from the end."""


class BinCount(NamedTuple):
    """What a scatter counts."""

    indices: Indices
    result: Node
    covered: tuple[Node, ...]


def match_of_bincount(found: BinCount, routine: Routine) -> Match:
    """The match of the scatter and of what it adds."""
    kind, view = found.result.shape.element_type, found.indices.view

    def attributes() -> dict[str, Any]:
        below = _FIRST if found.indices.clips else int(found.indices.wraps)
        described: dict[str, Any] = {"type": kind, "below": below}
        described |= sizes_and_strides({"indices": view, "dst": full_view(found.result)})
        return described | {"indices_offset": view.offset, "indices_elements": view.node.shape.elements}

    return Match(
        entry=routine,
        node=found.result,
        kernels=routine.kernels,
        kernel=routine.kernels[0],
        operands={"indices": view},
        results=(found.result,),
        result_shapes=(found.result.shape,),
        covered=found.covered,
        formula=routine.formula,
        attributes=attributes,
        numerics=lambda: routine.numerics[kind],
        multiply_adds=view.sizes[0],
    )


def find_bincount(scatter: Node, graph: FlatGraph) -> BinCount | None:
    """What the scatter counts; None: it adds up something else."""
    if len(scatter.operands) != 3 or not scatter.shape.is_array or scatter.has_control_predecessors:
        return None
    start, indices, updates = scatter.operands
    if 0 in (scatter.shape.elements, indices.shape.elements):
        return None
    if scalar_constant(start) != 0 or scalar_constant(updates) != 1 or not _adds_numbers(scatter):
        return None
    if applied_by(scatter, graph) != "add":
        return None
    # What else happens to indices XLA computes.
    whole = View(indices, ((indices.shape.elements, 1),))
    found = read_indices(indices, scatter.shape.elements, may_clip=True) or Indices(whole, wraps=False)
    return BinCount(found, scatter, covered_by(scatter, {found.view.node}))


def _adds_numbers(scatter: Node) -> bool:
    """Whether single elements of a vector are updated, one for each index."""
    start, indices, updates = (operand.shape for operand in scatter.operands)
    numbers = scatter.proto.scatter_dimension_numbers
    if len(start.dimensions) != 1 or indices.element_type != "s32" or not is_row_major(indices):
        return False
    if numbers.input_batching_dims or list(numbers.scatter_dims_to_operand_dims) != [0]:
        return False
    windows = list(range(1, len(updates.dimensions)))
    return (
        updates.dimensions in ((indices.elements,), (indices.elements, 1))
        and list(numbers.update_window_dims) == windows
        and list(numbers.inserted_window_dims) == ([] if windows else [0])
        and count_entries(indices.dimensions, numbers.index_vector_dim)
    )
