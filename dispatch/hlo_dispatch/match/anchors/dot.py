"""Normalizer of dots: (batch…, M, K) · (batch…, K, N) → (batch…, M, N) with strides.

Free and contracting dimensions that lie behind one another in memory are merged into one; transposed
operands are read in place through their strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache

from hlo_dispatch.analysis.dot_dimensions import dot_dimensions
from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    full_view,
    merge_dimensions,
    peeled_views,
    with_dense_strides,
)
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings, converted_sums, fully_peeled
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES
from hlo_dispatch.pattern.table import AnchorKind

Numbers = tuple[int, ...]
"""Numbers of an operand's dimensions."""

# A matrix product reads a transposed operand as fast as a plain one: the copy XLA made is not needed.
_MAX_BATCH_DIMENSIONS = 10


def normalize_dot(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, an HLO dot, for the matmul kernel."""
    converts = converted_sums(node, around)
    if isinstance(converts, Refusal):
        return converts
    anchor = anchor_of_product(node, entry, around, fully_peeled)
    if isinstance(anchor, Refusal) or not converts:
        return anchor
    kinds = {anchor.source.element_type, "" if anchor.weights is None else anchor.weights.element_type}
    if not kinds <= INTEGER_TYPES:
        return Refusal("dot-dimensions", "an operand's integers do not lie as the product reads them", node.name)
    return replace(anchor, covers=converts, value=converts[-1])


def anchor_of_product(
    node: Node,
    entry: AnchorKind,
    around: Surroundings,
    chosen: Callable[[Sequence[View], Sequence[View]], tuple[View, View]],
) -> Anchor | Refusal:
    """The anchor of a dot.

    Args:
        chosen: the view that the kernel reads of each operand, of those that were found, nearest first.
    """
    left, right = dot_dimensions(node)
    batches = left.first_free
    if batches > _MAX_BATCH_DIMENSIONS:
        return Refusal("rank-unsupported", f"{batches} batch dimensions", node.name)
    destination = _matrix_of_result(node.shape.strided_dimensions, batches, right.first_free)
    if destination is None:
        return Refusal("dot-dimensions", "the result's free dimensions do not lie behind one another", node.name)
    sources = matrix_views(node.operands[0], left.batch, (left.free, left.contracting), around.results)
    weight_views = matrix_views(node.operands[1], right.batch, (right.contracting, right.free), around.results)
    for views, operand in zip((sources, weight_views), node.operands, strict=True):
        if not views:
            return Refusal("dot-dimensions", "an operand's dimensions do not lie behind one another", operand.name)
    source, weights = chosen(sources, weight_views)
    return Anchor(
        node=node,
        entry=entry,
        source=source,
        weights=weights,
        destination=destination,
        channel=len(destination) - 1,
        multiply_adds=math.prod([size for size, _ in destination]) * source.dimensions[-1][0],
    )


@lru_cache(maxsize=4096)
def _matrix_of_result(
    dimensions: tuple[Dimension, ...], batches: int, first_column: int
) -> tuple[Dimension, ...] | None:
    """The result's dimensions as (batch…, rows, columns); None: these do not lie behind one another."""
    rows, columns = merge_row_major(dimensions[batches:first_column]), merge_row_major(dimensions[first_column:])
    if rows is None or columns is None:
        return None
    found = (*dimensions[:batches], rows, columns)
    return with_dense_strides(found, found)


def merge_row_major(dimensions: Sequence[Dimension]) -> Dimension | None:
    """One dimension for several that are adjacent in memory, slowest first; None: they are not adjacent."""
    return merge_dimensions(reversed(dimensions))


def matrix_views(
    operand: Node, batch: Numbers, groups: tuple[Numbers, Numbers], results: AbstractSet[Node] = frozenset()
) -> list[View]:
    """The operand's peeled views as (batch…, group 0, group 1), where such a view exists, nearest first."""
    found: list[View] = []
    for view in peeled_views(full_view(operand), PEEL_CONVERTS_AND_LAYOUTS, results):
        dimensions = _matrix_dimensions(view.dimensions, batch, groups)
        if dimensions is not None:
            found.append(View(view.node, dimensions))
    return found


@lru_cache(maxsize=4096)
def _matrix_dimensions(
    dimensions: tuple[Dimension, ...], batch: Numbers, groups: tuple[Numbers, Numbers]
) -> tuple[Dimension, ...] | None:
    parts = [merge_row_major([dimensions[number] for number in group]) for group in groups]
    matrix = [part for part in parts if part is not None]
    if None in parts or not _readable(matrix):
        return None
    found = (*(dimensions[number] for number in batch), *matrix)
    return with_dense_strides(found, found)


def _readable(matrix: Sequence[Dimension]) -> bool:
    """Whether one of the two matrix dimensions is contiguous, which every fast matrix kernel needs."""
    return any(size == 1 or stride == 1 for size, stride in matrix)
