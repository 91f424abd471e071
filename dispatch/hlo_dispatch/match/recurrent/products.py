"""Products of a recurrent cell: those of the state, or of one step's input, with weights that no step changes.

The product of both, side by side, is one of each, with some rows of the weights. A cell may also multiply what it
computes of the state, as a GRU does that resets first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo_dispatch.analysis.counted_loop import CountedLoop, StackedAccess
from hlo_dispatch.analysis.dot_dimensions import dot_dimensions
from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, Node
from hlo_dispatch.analysis.peeling import PEEL_CONVERTS_AND_LAYOUTS, PEEL_ROUNDING_AND_LAYOUTS, PEEL_SLICES
from hlo_dispatch.analysis.strided_view import (
    Dimension,
    View,
    dimension_number,
    peel,
    peeled_views,
    rebase,
)
from hlo_dispatch.ir.shape import HALF_TYPES
from hlo_dispatch.match.anchors.anchor import unsupported_types
from hlo_dispatch.match.anchors.dot import matrix_views, merge_row_major

_PEEL_OFF_WEIGHTS = PEEL_CONVERTS_AND_LAYOUTS | PEEL_SLICES


@dataclass(frozen=True)
class Product:
    """A product of rows with weights in the body of a loop, or the part of it that one operand has."""

    dot: Node
    rows: Dimension
    """Of the result, over its buffer."""
    columns: Dimension
    data: View
    """(rows, inputs): over the buffer of the state, of the slice which is one step's input, or of a computed value."""
    is_half: bool
    """Whether it reads the data in half precision: stored so, or rounded in each step."""
    state: int | None
    """The element of the loop's tuple that is the state; None: it reads something else."""
    access: StackedAccess | None
    """The stacked input; None: it reads something else."""
    weights: View
    """(inputs, columns), over the buffer of an element of the loop's tuple or of a constant."""


def read_products(loop: CountedLoop, dot: Node) -> tuple[Product, ...]:
    """The state's product, the input's, both, or a computed value's; nothing where the weights change."""
    left, right = dot_dimensions(dot)
    if left.batch or unsupported_types(dot) is not None:
        return ()
    result, sides = dot.shape.strided_dimensions, (left, right)
    free = (result[: right.first_free], result[right.first_free :])
    for number in (0, 1):
        side, other = sides[number], sides[1 - number]
        rows, columns = merge_row_major(free[number]), merge_row_major(free[1 - number])
        if rows is None or columns is None:
            continue
        weights = _invariant(loop, matrix_views(dot.operands[1 - number], (), (other.contracting, other.free)))
        if weights is None:
            continue
        views = matrix_views(dot.operands[number], (), (side.free, side.contracting))
        for view in views:
            found = [_product(loop, dot, rows, columns, *part) for part in _parts(_joined(view), weights)]
            products = tuple(product for product in found if product is not None)
            if products and len(products) == len(found) and _are_different(products):
                return products
        if views:
            is_half = narrowed(views[0]).element_type in HALF_TYPES
            return (Product(dot, rows, columns, views[0], is_half, None, None, weights),)
    return ()


def is_invariant(loop: CountedLoop, node: Node) -> bool:
    """Whether a value of the body is handed on unchanged, or a constant."""
    element = loop.element_of(node)
    return node.opcode == "constant" or (element is not None and loop.is_invariant(element))


def narrowed(view: View) -> View:
    """The view over the half precision numbers that were widened to the view's; else the view."""
    views = peeled_views(view, PEEL_CONVERTS_AND_LAYOUTS)
    return next((peeled for peeled in views if peeled.element_type in HALF_TYPES), view)


def _joined(view: View) -> View:
    """The view over arrays side by side, of which it has the rounded values; else the view itself."""
    views = peeled_views(view, PEEL_ROUNDING_AND_LAYOUTS)
    return next((peeled for peeled in views if peeled.node.opcode == "concatenate"), view)


def _parts(view: View, weights: View) -> Iterator[tuple[View, View]]:
    """What a product reads, with the rows of the weights: of each array where several lie side by side."""
    row, column = (dimension_number(dimension, view.node) for dimension in view.dimensions)
    if view.node.opcode != "concatenate" or column is None or view.node.proto.dimensions[:] != [column]:
        yield view, weights
        return
    first = weights.offset
    (_, stride), columns = weights.dimensions
    for operand in view.node.operands:
        own = operand.shape.strided_dimensions
        rows = own[row] if row is not None and view.dimensions[0][0] > 1 else (1, 1)
        inputs = own[column]
        yield View(operand, (rows, inputs)), View(weights.node, ((inputs[0], stride), columns), first)
        first += inputs[0] * stride


def _product(
    loop: CountedLoop, dot: Node, rows: Dimension, columns: Dimension, view: View, weights: View
) -> Product | None:
    data, is_half = view, False
    while True:
        data = _without_inserted_copies(data)
        is_half |= data.element_type in HALF_TYPES
        element, access = loop.element_of(data.node), loop.stacked_input(data.node)
        if element is not None and not loop.is_invariant(element):
            return Product(dot, rows, columns, data, is_half, element, None, weights)
        if access is not None:
            return Product(dot, rows, columns, data, is_half, None, access, weights)
        peeled = peel(data, PEEL_ROUNDING_AND_LAYOUTS)
        if peeled is None:
            return None
        data = peeled


def _are_different(products: tuple[Product, ...]) -> bool:
    """Whether there is at most one product of a state, and one of an input."""
    return len({product.state is None for product in products}) == len(products)


def _invariant(loop: CountedLoop, views: list[View]) -> View | None:
    for view in views:
        found: View | None = view
        while found is not None:
            found = _without_inserted_copies(found)
            if is_invariant(loop, found.node):
                return found
            found = peel(found, _PEEL_OFF_WEIGHTS)
    return None


def _without_inserted_copies(view: View) -> View:
    """The view over what was copied, maybe into another layout: a call in place of the loop needs no copies."""
    while view.node.opcode == INSERTED_COPY:
        source = view.node.operands[0]
        copied = rebase(view, source, source.shape.strides)
        if not isinstance(copied, View):
            break
        view = copied
    return view
