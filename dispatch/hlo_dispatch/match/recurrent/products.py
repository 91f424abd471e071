"""Products of a recurrent cell: those of the state, or of one step's input, with weights that no step changes."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_dispatch.analysis.counted_loop import CountedLoop, StackedAccess
from hlo_dispatch.analysis.dot_dimensions import dot_dimensions
from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, Node
from hlo_dispatch.analysis.strided_view import Dimension, View, rebase
from hlo_dispatch.match.anchors.anchor import unsupported_types
from hlo_dispatch.match.anchors.dot import matrix_views, merge_row_major


@dataclass(frozen=True)
class Product:
    """A product of rows with weights in the body of a loop."""

    dot: Node
    rows: Dimension
    """Of the result, over its buffer."""
    columns: Dimension
    data: View
    """(rows, inputs): over the state's buffer, or over that of the slice which is one step's input."""
    state: int | None
    """The element of the loop's tuple that is the state; None: it is an input's product."""
    access: StackedAccess | None
    """The stacked input; None: it is the state's product."""
    weights: View
    """(inputs, columns), over the buffer of an element of the loop's tuple."""
    weights_element: int


def read_product(loop: CountedLoop, dot: Node) -> Product | None:
    """None where the dot is another product."""
    left, right = dot_dimensions(dot)
    if left.batch or unsupported_types(dot) is not None:
        return None
    result, sides = dot.shape.strided_dimensions, (left, right)
    free = (result[: right.first_free], result[right.first_free :])
    for number in (0, 1):
        side, other = sides[number], sides[1 - number]
        rows, columns = merge_row_major(free[number]), merge_row_major(free[1 - number])
        if rows is None or columns is None:
            continue
        weights = _invariant(loop, matrix_views(dot.operands[1 - number], [], [other.contracting, other.free]))
        if weights is None:
            continue
        for view in matrix_views(dot.operands[number], [], [side.free, side.contracting]):
            data = _without_inserted_copies(view)
            element, access = loop.element_of(data.node), loop.stacked_input(data.node)
            if element is not None and not loop.is_invariant(element):
                return Product(dot, rows, columns, data, element, None, *weights)
            if access is not None:
                return Product(dot, rows, columns, data, None, access, *weights)
    return None


def _invariant(loop: CountedLoop, views: list[View]) -> tuple[View, int] | None:
    for view in map(_without_inserted_copies, views):
        element = loop.element_of(view.node)
        if element is not None and loop.is_invariant(element):
            return view, element
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
