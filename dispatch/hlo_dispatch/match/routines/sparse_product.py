"""Products of a sparse matrix and a dense one: entries times gathered rows, added up where a scatter says.

    gathered = select(column is inside, gather(source, columns), 0 or NaN), or the gather alone
    scatter(zeros, rows, multiply(broadcast(values), gathered)), which adds

as jax.experimental.sparse's BCOO and code by hand (`.at[rows].add(values[:, None] * source[columns])`) have it. What an
index goes through on its way (indices below 0 count from the end) is recognized by what it does with sample indices.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import (
    PEEL_BITCASTS,
    PEEL_LAYOUTS,
    PEEL_SHAPES,
    PEEL_SLICES,
    is_widening,
    peel_node,
)
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, full_view, peeled_views
from hlo_dispatch.match.described_view import sizes_and_strides
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.reduction import applied_by
from hlo_dispatch.match.routines.index_arithmetic import evaluated, peel_shapes, samples, source_of
from hlo_dispatch.pattern import Routine
from hlo_dispatch.pattern.constraints import is_row_major

_NEAREST, _ZERO, _NAN = range(3)
"""What an entry is multiplied by whose column is outside, as the kernel's attribute says it."""


class Indices(NamedTuple):
    """The indices of one dimension of a matrix."""

    view: View
    wraps: bool
    """Whether those below 0 count from the end."""
    clips: bool = False
    """Whether they are 0."""


class GatheredRows(NamedTuple):
    """Rows of a matrix that a gather reads."""

    source: View
    indices: Indices
    outside: int
    """What there is instead of rows outside."""
    gather: Node


class SparseProduct(NamedTuple):
    """What a scatter adds up."""

    values: View
    rows: Indices
    columns: Indices
    source: View
    outside: int
    result: Node
    covered: tuple[Node, ...]


def match_of_sparse_product(found: SparseProduct, routine: Routine) -> Match:
    """The match of the scatter and of what it adds."""
    kind = found.source.element_type
    operands = {
        "values": found.values, "rows": found.rows.view, "columns": found.columns.view, "src": found.source
    }  # fmt: skip

    def attributes() -> dict[str, Any]:
        described: dict[str, Any] = {"type": kind, "outside": found.outside}
        described |= {"rows_wrap": int(found.rows.wraps), "columns_wrap": int(found.columns.wraps)}
        described |= sizes_and_strides({**operands, "dst": full_view(found.result)})
        for role in ("rows", "columns"):
            view = operands[role]
            described |= {f"{role}_offset": view.offset, f"{role}_elements": view.node.shape.elements}
        return described

    entries, width = found.values.sizes[0], found.source.sizes[1]
    return Match(
        entry=routine,
        node=found.result,
        kernels=routine.kernels,
        kernel=routine.kernels[0],
        operands=operands,
        results=(found.result,),
        result_shapes=(found.result.shape,),
        covered=found.covered,
        formula=routine.formula,
        attributes=attributes,
        numerics=lambda: routine.numerics[kind],
        multiply_adds=entries * width,
    )


def find_sparse_product(scatter: Node, graph: FlatGraph) -> SparseProduct | None:
    """What the scatter adds up; None: it is no such product."""
    if len(scatter.operands) != 3 or not scatter.shape.is_array or scatter.has_control_predecessors:
        return None
    start, indices, updates = scatter.operands
    if scalar_constant(start) != 0 or not _adds_rows(scatter) or applied_by(scatter, graph) != "add":
        return None
    size, width = scatter.shape.dimensions
    product = peel_node(updates, PEEL_SHAPES)
    if product.opcode != "multiply":
        return None
    for factor, gathered in (product.operands, product.operands[::-1]):
        values = _values(factor, product)
        found = read_gathered(gathered, product.shape.elements)
        if values is None or found is None:
            continue
        source, columns, outside, _ = found
        rows = read_indices(indices, size)
        entries = values.sizes[0]
        sizes = [view.sizes for view in (*((rows.view,) if rows is not None else ()), columns.view)]
        if rows is None or source.sizes[1] != width or sizes != [[entries], [entries]]:
            continue
        covered = covered_by(scatter, {values.node, source.node, rows.view.node, columns.view.node})
        if product not in covered:
            return None
        return SparseProduct(values, rows, columns, source, outside, scatter, covered)
    return None


def _adds_rows(scatter: Node) -> bool:
    """Whether whole rows of a matrix are updated, the first dimension of the updates counting them."""
    start, indices, updates = (operand.shape for operand in scatter.operands)
    numbers = scatter.proto.scatter_dimension_numbers
    if len(start.dimensions) != 2 or indices.element_type != "s32" or not all(map(is_row_major, (start, updates))):
        return False
    if numbers.input_batching_dims or list(numbers.scatter_dims_to_operand_dims) != [0]:
        return False
    entries, width = indices.elements, start.dimensions[1]
    windows = list(range(1, len(updates.dimensions)))
    inserted = [] if len(windows) == 2 else [0]
    expected = (entries, *([1] if len(windows) == 2 else []), width)
    return (
        updates.dimensions == expected
        and list(numbers.update_window_dims) == windows
        and list(numbers.inserted_window_dims) == inserted
        and count_entries(indices.dimensions, numbers.index_vector_dim)
    )


def read_gathered(node: Node, elements: int, *, may_widen: bool = False) -> GatheredRows | None:
    """The gathered rows, so many elements; None: no rows are gathered.

    Args:
        may_widen: whether rows of bf16 may be f32 on their way.
    """
    types: set[str] = set()

    def peeled(node: Node) -> Node:
        while (source := peel_shapes(node)) is not node or (may_widen and node.opcode == "convert"):
            types.add(node.shape.element_type)
            node = source if source is not node else node.operands[0]
        types.add(node.shape.element_type)
        return node

    outside, node = _NEAREST, peeled(node)
    mask: Node | None = None
    if node.opcode == "select":
        mask, filling = peel_shapes(node.operands[0]), scalar_constant(node.operands[2])
        if filling is None or not (filling == 0 or np.isnan(filling)):
            return None
        outside, node = _NAN if np.isnan(filling) else _ZERO, peeled(node.operands[1])
    if node.opcode != "gather" or not _gathers_rows(node) or node.shape.elements != elements:
        return None
    source, start = node.operands
    source = source.operands[0] if may_widen and is_widening(source) else source
    kind = source.shape.element_type
    if not is_row_major(source.shape) or not types <= ({"f32", kind} if kind == "bf16" else {kind}):
        return None
    columns = read_indices(start, source.shape.dimensions[0])
    if mask is not None and (columns is None or not _is_inside(mask, start, source.shape.dimensions[0])):
        return None
    if columns is None:
        if not is_row_major(start.shape):
            return None
        columns = Indices(View(start, ((start.shape.elements, 1),)), wraps=False)
    return GatheredRows(full_view(source), columns, outside, node)


def _gathers_rows(gather: Node) -> bool:
    """Whether whole rows of a matrix are gathered, one behind the other in the order of their indices."""
    source, start = (operand.shape for operand in gather.operands)
    numbers = gather.proto.gather_dimension_numbers
    if len(source.dimensions) != 2 or start.element_type != "s32":
        return False
    if not all(map(is_row_major, (source, gather.shape))):
        return False
    offsets, rank = list(numbers.offset_dims), len(gather.shape.dimensions)
    vector = start.dimensions[numbers.index_vector_dim :]
    return (
        not numbers.operand_batching_dims
        and list(numbers.start_index_map) == [0]
        and offsets == list(range(rank - len(offsets), rank))
        and list(numbers.collapsed_slice_dims) == ([] if len(offsets) == 2 else [0])
        and list(gather.proto.gather_slice_sizes) == [1, source.dimensions[1]]
        and vector in ((), (1,))
    )


def count_entries(dimensions: tuple[int, ...], vector: int) -> bool:
    """Whether indices are those of one dimension, in one row."""
    return (len(dimensions) == 1 and vector == 1) or (len(dimensions) == 2 and vector == 1 and dimensions[1] == 1)


def _values(factor: Node, product: Node) -> View | None:
    """The values of the entries, which a broadcast repeats along the rows; None: they are something else."""
    factor = peel_node(factor, PEEL_SHAPES)
    if factor.opcode != "broadcast" or factor.shape.elements != product.shape.elements:
        return None
    repeated = [number for number, size in enumerate(factor.shape.dimensions) if size > 1]
    sizes = factor.operands[0].shape.dimensions
    named = [number for number, size in zip(factor.proto.dimensions[:], sizes, strict=True) if size > 1]
    if not repeated or named != repeated[:1] or not is_row_major(factor.shape):
        return None
    values = peel_node(factor.operands[0], PEEL_BITCASTS)
    return View(values, ((values.shape.elements, 1),)) if is_row_major(values.shape) else None


# --- indices ---------------------------------------------------------------------------------------------------


def read_indices(node: Node, size: int, *, may_clip: bool = False) -> Indices | None:
    """The indices and what happens to those below 0; None: something else happens to them, too.

    Args:
        may_clip: whether they may be 0.
    """
    source = source_of(node)
    if source is None or source.shape.element_type != "s32" or not is_row_major(source.shape):
        return None
    before, found = samples(size), evaluated(node, source, size)
    if found is None:
        return None
    is_same = np.array_equal(found, before)
    wraps = not is_same and np.array_equal(found, cast("Any", np.where(before < 0, before + size, before)))
    clips = may_clip and np.array_equal(found, np.maximum(before, 0))
    if not is_same and not wraps and not clips:
        return None
    views = peeled_views(View(source, ((source.shape.elements, 1),)), PEEL_LAYOUTS | PEEL_SLICES)
    view = next(view for view in reversed(views) if view.strides[0] > 0)
    return Indices(_ahead_of_permutation(view), wraps, clips)


def _ahead_of_permutation(view: View) -> View:
    """The view of a column of indices ahead of the gather by which BCOO puts the summed dimension first."""
    node, (entries,) = view.node, view.sizes
    if node.opcode != "gather" or view.strides != [1] or not is_row_major(node.shape):
        return view
    source, order = node.operands
    numbers, size = node.proto.gather_dimension_numbers, source.shape.dimensions
    is_of_columns = list(numbers.start_index_map) == [1] and list(numbers.offset_dims) == [1, 2]
    is_of_columns &= len(size) == 2 and size[0] == entries and numbers.index_vector_dim == 1
    is_of_columns &= list(node.proto.gather_slice_sizes) == [entries, 1] and not numbers.operand_batching_dims
    if not is_of_columns or order.opcode != "constant" or not is_row_major(source.shape) or view.offset % entries:
        return view
    columns, number = [*order.proto.literal.s32s, *order.proto.literal.s64s], view.offset // entries
    if order.shape.dimensions != (len(columns), 1) or not 0 <= columns[number] < size[1]:
        return view
    return View(source, ((entries, size[1]),), columns[number])


def _is_inside(mask: Node, start: Node, size: int) -> bool:
    """Whether a mask, of as many rows as there are indices, says which of them are inside."""
    entries = start.shape.elements
    if mask.opcode == "broadcast":
        named = list(mask.proto.dimensions[:])
        leading = [number for number, size in enumerate(mask.shape.dimensions) if size > 1 and number in named]
        counted = math.prod(mask.shape.dimensions[: leading[-1] + 1]) if leading else 1
        if named != sorted(named) or mask.operands[0].shape.elements != entries or counted != entries:
            return False
        mask = mask.operands[0]
        if not is_row_major(mask.shape):
            return False
    source = source_of(start)
    if source is None or mask.shape.elements != entries or source_of(mask) is not source:
        return False
    found, index = evaluated(mask, source, size), evaluated(start, source, size)
    if found is None or index is None:
        return False
    return np.array_equal(found, (index >= 0) & (index < size))


def covered_by(result: Node, ends: set[Node]) -> tuple[Node, ...]:
    """The result, and what is computed for it alone from what the kernel reads."""
    above, pending = set[Node](), [result]
    while pending:
        for operand in pending.pop().operands:
            if operand not in above and operand not in ends and operand.operands:
                above.add(operand)
                pending.append(operand)
    found = {result}
    for node in sorted(above, key=lambda node: -node.index):  # users are known before their operands
        if found.issuperset(node.users) and not node.is_live_out and not node.has_control_predecessors:
            found.add(node)
    return tuple(sorted(found, key=lambda node: node.index))
