"""Cumulative sums, products, maxima, minima and log-sum-exps, as XLA leaves them: a tree of reduce-windows.

XLA divides a line into blocks. A reduce-window accumulates inside each, what the blocks give as a whole is accumulated
in the same way, and each block is combined with what precedes it:

    blocks = reduce-window(bitcast(pad(x)))              inside each block
    last = bitcast(slice(blocks))                        what each block gives
    before = reduce-window(last), or pad(the same of last)
    result = slice(bitcast(combine(blocks, broadcast(slice(before)))))

with transposes and copies around it where the line is not the last dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, PEEL_LAYOUTS, peel_node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import Dimension, View, follow, peeled_views, rebase_dimensions
from hlo_dispatch.match.described_view import sizes_and_strides
from hlo_dispatch.match.elementwise_points import ElementwisePoints, NotElementwise
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.reduction import applied_by
from hlo_dispatch.pattern import Routine
from hlo_dispatch.pattern.constraints import is_row_major

_LOG_ADD_EXP = "log-add-exp"
_OPERATIONS = {
    "add": "sum", "multiply": "product", "maximum": "maximum", "minimum": "minimum", _LOG_ADD_EXP: "logsumexp",
}  # fmt: skip
"""The operation that a reduction applies → what a cumulative routine of it is called."""
_POINTS = (-math.inf, -300.0, -2.5, 0.0, 1.0, 50.0, math.inf, math.nan)
_MAX_LEVELS = 16


class _Scan(NamedTuple):
    """The value that one level of the tree computes."""

    source: Node
    """What is accumulated: (lines…, blocks, elements of a block), row-major."""
    operation: str
    is_reversed: bool


class Cumulative(NamedTuple):
    """What a tree of reduce-windows computes."""

    operation: str
    is_reversed: bool
    source: View
    """(lines, length, columns), row-major."""
    result: Node
    covered: tuple[Node, ...]

    @property
    def routine(self) -> str:
        """The name of its routine."""
        return f"cumulative_{_OPERATIONS[self.operation]}"


def match_of_cumulative(found: Cumulative, routine: Routine) -> Match:
    """The match of a whole tree."""
    view, kind = found.source, found.source.element_type

    def attributes() -> dict[str, Any]:
        return {"type": kind, "reversed": int(found.is_reversed), **sizes_and_strides({"src": view, "dst": view})}

    return Match(
        entry=routine,
        node=found.result,
        kernels=routine.kernels,
        kernel=routine.kernels[0],
        operands={"src": view},
        results=(found.result,),
        result_shapes=(found.result.shape,),
        covered=found.covered,
        formula=routine.formula,
        attributes=attributes,
        numerics=lambda: routine.numerics[kind],
    )


def find_cumulative(blocks: Node, graph: FlatGraph) -> Cumulative | None:
    """What the tree computes whose first reduce-window this is; None: it is the first one of no such tree."""
    for combined in blocks.users:
        scan = _scan(combined, graph)
        if scan is None or blocks not in combined.operands:
            continue
        for source, result in _ends(combined, scan.source, scan.operation):
            covered = _between(source.node, result)
            if covered is not None and _is_closed(covered, result):
                return Cumulative(scan.operation, scan.is_reversed, source, result, covered)
    return None


# --- the tree --------------------------------------------------------------------------------------------------


def _scan(combined: Node, graph: FlatGraph, levels: int = _MAX_LEVELS) -> _Scan | None:
    """What a value is that combines blocks with what precedes each of them; None: it is none."""
    if len(combined.operands) != 2 or not levels:
        return None
    for blocks, repeated in (combined.operands, combined.operands[::-1]):
        if blocks.opcode != "reduce-window" or repeated.opcode != "broadcast" or not is_row_major(blocks.shape):
            continue
        operation = _operation(blocks, graph)
        is_reversed = _direction(blocks, -1, blocks.shape.dimensions[-1] - 1)
        if is_reversed is None or not operation or _applied(combined, graph) != operation:
            return None
        if not _is_repeated_along_last(repeated):
            return None
        scan = _Scan(blocks.operands[0], operation, is_reversed)
        return scan if _precedes(repeated.operands[0], blocks, scan, graph, levels - 1) else None
    return None


def _is_repeated_along_last(node: Node) -> bool:
    """Whether a broadcast repeats along the last dimension alone; others of one element may be new."""
    source, dimensions, named = node.operands[0].shape, node.shape.dimensions, list(node.proto.dimensions[:])
    needed = [number for number, size in enumerate(dimensions[:-1]) if size != 1]
    return (
        set(needed) <= set(named) <= set(range(len(dimensions) - 1))
        and named == sorted(named)
        and is_row_major(source)
        and is_row_major(node.shape)
    )


def _precedes(before: Node, blocks: Node, scan: _Scan, graph: FlatGraph, levels: int) -> bool:
    """Whether a value, (lines…, blocks) but for dimensions of one element, is what the blocks ahead of each give."""
    count = blocks.shape.dimensions[-2]
    cut = peel_node(before, PEEL_BITCASTS)
    first = 1 if scan.is_reversed else 0
    whole = _whole_but(cut, first, count)
    if whole is None:
        return False
    exclusive = peel_node(whole, PEEL_BITCASTS)
    if exclusive.opcode == "reduce-window":
        axis = _last_axis(exclusive)
        return (
            exclusive.shape.dimensions[axis] == count + 1
            and _operation(exclusive, graph) == scan.operation
            and _direction(exclusive, axis, count) is scan.is_reversed
            and _is_last_of(peel_node(exclusive.operands[0], PEEL_BITCASTS), blocks, scan)
        )
    padded = _padded(exclusive, scan.operation)
    if padded is None or padded[1:] != ((0, 1) if scan.is_reversed else (1, 0)):
        return False
    inner = peel_node(padded[0], PEEL_BITCASTS)
    if inner.opcode == "slice":
        inner = peel_node(_whole_but(inner, 0, count) or inner, PEEL_BITCASTS)
    nested = _scan(inner, graph, levels)
    if nested is None or nested[1:] != scan[1:]:
        return False
    tiled, length = peel_node(nested.source, PEEL_BITCASTS), math.prod(nested.source.shape.dimensions[-2:])
    if tiled.opcode == "pad":
        padded = _padded(tiled, scan.operation)
        if padded is None or padded[1:] != (0, length - count):
            return False
        tiled = peel_node(padded[0], PEEL_BITCASTS)
    elif length != count:
        return False
    return _is_last_of(tiled, blocks, scan)


def _is_last_of(node: Node, blocks: Node, scan: _Scan) -> bool:
    """Whether a value is what each block gives as a whole: its last element, or the first one."""
    if node.opcode != "slice" or node.operands[0] is not blocks:
        return False
    *ahead, size = blocks.shape.dimensions
    start = 0 if scan.is_reversed else size - 1
    cuts = [(cut.start, cut.limit, cut.stride) for cut in node.proto.slice_dimensions[:]]
    return cuts == [*((0, other, 1) for other in ahead), (start, start + 1, 1)] and is_row_major(node.shape)


def _whole_but(node: Node, first: int, count: int) -> Node | None:
    """What a slice is cut from along its last dimension, `count` elements from `first` on."""
    if node.opcode != "slice" or not is_row_major(node.shape):
        return None
    source = node.operands[0]
    cuts = [(cut.start, cut.limit, cut.stride) for cut in node.proto.slice_dimensions[:]]
    axis = _last_axis(source)
    whole = [(0, size, 1) for size in source.shape.dimensions]
    whole[axis] = (first, first + count, 1)
    return source if cuts == whole and is_row_major(source.shape) else None


def _last_axis(node: Node) -> int:
    """The last dimension with more than one element."""
    dimensions = node.shape.dimensions
    return next((number for number in reversed(range(len(dimensions))) if dimensions[number] != 1), 0)


def _direction(node: Node, axis: int, padding: int) -> bool | None:
    """Whether a reduce-window accumulates along the dimension from its end; None: it does something else.

    Args:
        padding: how many neutral elements lie ahead of the line: as many as it has, or one less.
    """
    size = node.operands[0].shape.dimensions[axis]
    windows = node.proto.window.dimensions[:]
    found: bool | None = None
    for number, window in enumerate(windows):
        if window.stride != 1 or window.window_reversal or window.window_dilation > 1 or window.base_dilation > 1:
            return None
        ends = window.size, window.padding_low, window.padding_high
        if number != axis % len(windows):
            if ends != (1, 0, 0):
                return None
        elif ends == (size, padding, 0):
            found = False
        elif ends == (size, 0, padding):
            found = True
    return found


def _operation(node: Node, graph: FlatGraph) -> str:
    """What a reduce-window applies, from its neutral element on; empty: something else."""
    if len(node.operands) != 2 or not node.shape.is_array:
        return ""
    operation = _applied(node, graph)
    return operation if operation and _is_neutral(node.operands[1], operation) else ""


def _applied(node: Node, graph: FlatGraph) -> str:
    """What is applied to two elements each, one of the known operations; empty: something else."""
    if node.opcode not in ("reduce-window", "map"):
        return node.opcode if node.opcode in _OPERATIONS else ""
    applied = applied_by(node, graph)
    if not applied:
        called = node.proto.called_computation_ids[0]
        applied = _LOG_ADD_EXP if _adds_exponentials(FlatGraph(graph.module, graph.module.computations[called])) else ""
        graph.applied[called] = applied
    return applied if applied in _OPERATIONS else ""


def _adds_exponentials(computation: FlatGraph) -> bool:
    """Whether a computation of two scalars gives the logarithm of the sum of their exponentials.

    One with a number of its own may be another one beyond that number, where no point of ours lies.
    """
    if any(node.opcode == "constant" for node in computation.nodes):
        return False
    given = [axis.ravel() for axis in np.meshgrid(_POINTS, _POINTS, indexing="ij")]
    offsets = np.zeros(1, np.int64)
    try:
        points = ElementwisePoints([(computation.root, offsets)], lambda node: node.opcode == "parameter")
    except NotElementwise:
        return False
    (found,) = points.evaluate({source: given[source.node.proto.parameter_number] for source in points.sources})
    with np.errstate(all="ignore"):
        expected = np.logaddexp(*given)
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-12, atol=0, equal_nan=True)


def _is_neutral(node: Node, operation: str) -> bool:
    value = scalar_constant(node)
    if value is None:
        return False
    if operation in ("add", "multiply"):
        return value == (0 if operation == "add" else 1)
    bits = {"s32": 31, "s64": 63}.get(node.shape.element_type)
    if operation == "minimum":
        return value == (math.inf if bits is None else 2**bits - 1)
    return value == (-math.inf if bits is None else -(2**bits))


def _padded(node: Node, operation: str) -> tuple[Node, int, int] | None:
    """What neutral elements are appended to along its last dimension, how many ahead of it and how many behind."""
    if node.opcode != "pad" or not _is_neutral(node.operands[1], operation) or not is_row_major(node.shape):
        return None
    axis = _last_axis(node)
    found = [
        (padding.edge_padding_low, padding.edge_padding_high, padding.interior_padding)
        for padding in node.proto.padding_config.dimensions[:]
    ]
    low, high, interior = found.pop(axis)
    if any(each != (0, 0, 0) for each in found) or interior or min(low, high) < 0:
        return None
    return (node.operands[0], low, high) if is_row_major(node.operands[0].shape) else None


# --- the ends of it --------------------------------------------------------------------------------------------


def _ends(combined: Node, tiled: Node, operation: str) -> Iterator[tuple[View, Node]]:
    """Pairs of a source, in the dimensions of a call, and of a result that lies in memory as that does."""
    *lines, blocks, size = tiled.shape.dimensions
    source, length = tiled, blocks * size
    if (padded := _padded(peel_node(tiled, PEEL_BITCASTS), operation)) is not None:
        source, length = padded[0], length - padded[2]
        if padded[1] or source.shape.dimensions[-1] != length:
            return
    if math.prod(lines) * length != source.shape.elements or not is_row_major(tiled.shape):
        return
    results = [*_results(View(combined, _row_major((*lines, blocks * size))), length)]
    for view in reversed(peeled_views(View(source, _row_major((*lines, length))), PEEL_LAYOUTS)):
        dimensions = _with_unit_strides(view.dimensions)
        merged = _merged(dimensions)
        for result in reversed(results):
            if merged is not None and not view.offset and result.dimensions == dimensions:
                yield View(view.node, merged), result.node


def _results(view: View, length: int) -> Iterator[View]:
    """The combined blocks as lines of this length, in one layout after another."""
    for _ in range(_MAX_LEVELS):
        view = view._replace(dimensions=_with_unit_strides(view.dimensions))
        if view.sizes[-1] == length:
            yield view
        users = view.node.users
        if len(users) != 1 or view.node.is_live_out:
            return
        following = _cut(view, users[0], length) if users[0].opcode == "slice" else follow(view, users[0], PEEL_LAYOUTS)
        if following is None:
            return
        view = following


def _cut(view: View, node: Node, length: int) -> View | None:
    """The view without padded elements, where the slice is cut along the lines alone."""
    own = view.node.shape.strided_dimensions
    if view.dimensions[-1] not in own:
        return None
    axis = own.index(view.dimensions[-1])
    cuts = [(cut.start, cut.limit, cut.stride) for cut in node.proto.slice_dimensions[:]]
    whole = [(0, size, 1) for size in view.node.shape.dimensions]
    whole[axis] = (0, length, 1)
    ahead = rebase_dimensions(view.dimensions[:-1], view.node.shape, node.shape.strides)
    if cuts != whole or ahead is None:
        return None
    return View(node, (*ahead, (length, node.shape.strides[axis])))


def _row_major(sizes: tuple[int, ...]) -> tuple[Dimension, ...]:
    strides = [math.prod(sizes[number + 1 :]) for number in range(len(sizes))]
    return _with_unit_strides(tuple(zip(sizes, strides, strict=True)))


def _with_unit_strides(dimensions: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """With one stride for all dimensions of one element, where it means nothing."""
    return tuple((size, stride if size > 1 else 1) for size, stride in dimensions)


def _merged(dimensions: tuple[Dimension, ...]) -> tuple[Dimension, ...] | None:
    """The dimensions of a dense array as (lines, length, columns); None where they have gaps."""
    *ahead, (length, stride) = dimensions
    columns = math.prod(size for size, other in ahead if size > 1 and other < stride)
    lines = math.prod(size for size, _ in ahead) // columns
    return ((lines, length * columns), (length, columns), (columns, 1)) if stride == columns else None


def _between(source: Node, result: Node) -> tuple[Node, ...] | None:
    """The instructions that compute a result from a source alone; None where there is another one."""
    found, pending = {result}, [result]
    while pending:
        for operand in pending.pop().operands:
            if operand is source or operand in found or operand.opcode == "constant":
                continue
            if not operand.operands:
                return None
            found.add(operand)
            pending.append(operand)
    return tuple(sorted(found, key=lambda node: node.index))


def _is_closed(covered: tuple[Node, ...], result: Node) -> bool:
    """Whether nothing but the result is read elsewhere."""
    inside = set(covered)
    return not any(
        node.has_control_predecessors
        or (node is not result and (node.is_live_out or not inside.issuperset(node.users)))
        for node in covered
    )
