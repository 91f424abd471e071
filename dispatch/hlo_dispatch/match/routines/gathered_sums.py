"""Sums and means of gathered rows, as embeddings of bags of tokens have them: `table[indices].mean(1)`.

gathered = select(index is inside, gather(source, indices), 0 or NaN), or the gather alone
reduce(gathered), which adds, times 1 / how many rows where that is there
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.peeling import PEEL_SHAPES
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.analysis.strided_view import View, full_view
from hlo_dispatch.match.described_view import sizes_and_strides
from hlo_dispatch.match.match import Match
from hlo_dispatch.match.reduction import reduces, windows_before
from hlo_dispatch.match.routines.product import Dimensions
from hlo_dispatch.match.routines.sparse_product import GatheredRows, covered_by, read_gathered
from hlo_dispatch.pattern import Routine
from hlo_dispatch.pattern.constraints import is_row_major

_MOST_STEPS = 12
"""Instructions between a gather and the sum of its rows."""
_LEADS_ON = PEEL_SHAPES | {"convert", "reduce-window", "select"}


class GatheredSums(NamedTuple):
    """What a reduction adds up."""

    gathered: GatheredRows
    indices: View
    """Those of each sum in a row."""
    is_mean: bool
    result: Node
    covered: tuple[Node, ...]


def match_of_gathered_sums(found: GatheredSums, routine: Routine) -> Match:
    """The match of the reduction and of what it adds."""
    gathered, indices, source = found.gathered, found.indices, found.gathered.source
    kind = source.element_type

    def attributes() -> dict[str, Any]:
        described: dict[str, Any] = {"type": kind, "dst_type": found.result.shape.element_type}
        described |= {"mean": int(found.is_mean), "wrap": int(gathered.indices.wraps), "outside": gathered.outside}
        described |= sizes_and_strides({"indices": indices, "src": source, "dst": full_view(found.result)})
        return described | {"indices_offset": indices.offset, "indices_elements": indices.node.shape.elements}

    return Match(
        entry=routine,
        node=found.result,
        kernels=routine.kernels,
        kernel=routine.kernels[0],
        operands={"indices": indices, "src": source},
        results=(found.result,),
        result_shapes=(found.result.shape,),
        covered=found.covered,
        formula=routine.formula,
        attributes=attributes,
        numerics=lambda: routine.numerics[kind],
        multiply_adds=math.prod(indices.sizes) * source.sizes[1],
    )


def find_gathered_sums(gather: Node, graph: FlatGraph) -> GatheredSums | None:
    """The sums of rows that a gather begins; None: its rows are not added up."""
    total = _sum_of(gather, graph)
    if total is None or not is_row_major(total.shape):
        return None
    windows = windows_before(total, graph, "add")
    summed = (windows[-1] if windows else total).operands[0]
    gathered = read_gathered(summed, summed.shape.elements, may_widen=True)
    if gathered is None or gathered.gather is not gather or not is_row_major(summed.shape):
        return None
    dimensions = _rows_of_sums(total, summed, gathered)
    # Another place than memory would have to be written first, all of it.
    if dimensions is None or gathered.source.node.top_level_id is None:
        return None
    view = gathered.indices.view
    result, is_mean = _result(total, gathered.source.element_type, dimensions[1][0])
    covered = covered_by(result, {gathered.source.node, view.node})
    if result.shape.element_type not in {gathered.source.element_type, "f32"} or gather not in covered:
        return None
    return GatheredSums(gathered, View(view.node, dimensions, view.offset), is_mean, result, covered)


def _sum_of(gather: Node, graph: FlatGraph) -> Node | None:
    """The last reduction of what is gathered, which adds; None: the values go elsewhere."""
    node = gather
    for _ in range(_MOST_STEPS):
        if len(node.users) != 1 or node.is_live_out:
            return None
        (node,) = node.users
        if node.opcode == "reduce":
            return node if reduces(node, graph, "add") else None
        if node.opcode not in _LEADS_ON:
            return None
    return None


def _rows_of_sums(total: Node, summed: Node, gathered: GatheredRows) -> Dimensions | None:
    """Sums, and rows of each, as sizes and strides of the indices; None: it sums up anything else."""
    sizes, ((entries, stride),) = summed.shape.dimensions, gathered.indices.view.dimensions
    ranks = (rank for rank in range(len(sizes) + 1) if math.prod(sizes[:rank]) == entries)
    rank = next(ranks, None)
    if rank is None:
        return None
    reduced = {number for number in total.proto.dimensions[:] if sizes[number] > 1}
    kept = {number for number in range(rank) if sizes[number] > 1} - reduced
    if any(number >= rank for number in reduced):
        return None
    count = math.prod(sizes[number] for number in reduced)
    sums = entries // count
    if max(kept, default=-1) < min(reduced, default=rank):
        return (sums, count * stride), (count, stride)
    if max(reduced, default=-1) < min(kept, default=rank):
        return (sums, stride), (count, sums * stride)
    return None


def _result(total: Node, kind: str, count: int) -> tuple[Node, bool]:
    """The last value that the kernel computes behind the sum, and whether it is a mean."""
    result, node, is_mean = total, total, False
    while len(node.users) == 1 and not node.is_live_out:
        (user,) = node.users
        if user.has_control_predecessors or not is_row_major(user.shape):
            break
        if user.opcode in ("multiply", "divide") and not is_mean and _is_mean(user, node, count):
            result, is_mean = user, True
        elif user.opcode == "convert" and user.shape.element_type == kind:
            return user, is_mean
        elif user.opcode not in PEEL_SHAPES:
            break
        node = user
    return result, is_mean


def _is_mean(node: Node, total: Node, count: int) -> bool:
    """Whether it is the sum divided by a count, which XLA multiplies by one over it."""
    first, second = node.operands
    other = second if first is total else first
    number = scalar_constant(other)
    if number is None or (node.opcode == "divide" and other is not second):
        return False
    if node.opcode == "divide":
        return number == count
    return math.isclose(number * count, 1, rel_tol=1e-7 if node.shape.element_type == "f32" else 1e-15)
