"""The larger of a value and a number in a kernel's terms: (N, C, spatial…), channels varying fastest.

    y[n, c, x] = max(src[n, c, x], number)

What also adds its argument to something else applies such a relu to a value that exists without it. The number is the
operand of the first of the kernel's post-ops, so that the epilogue's follow it.
"""

from __future__ import annotations

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.match.anchors.anchor import Anchor, unsupported_types
from hlo_dispatch.match.anchors.scaling import RANKS, channels_second, read_where_given
from hlo_dispatch.match.epilogue.operand import find_operand
from hlo_dispatch.match.epilogue.steps import PostOp
from hlo_dispatch.match.function import scalar_constant
from hlo_dispatch.match.strided import View, dense, project
from hlo_dispatch.pattern.table import AnchorKind


def is_rectifying(node: Node) -> bool:
    """Whether an instruction is the larger of a value and a number."""
    if node.opcode != "maximum" or len(node.shape.dimensions) not in RANKS:
        return False
    return sum(scalar_constant(operand) is not None for operand in node.operands) == 1


def read_rectifying(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Describe `node`, the larger of a value and a number, for the kernel."""
    refusal = unsupported_types(node)
    if refusal is not None:
        return refusal
    value, number = sorted(node.operands, key=lambda operand: scalar_constant(operand) is not None)
    if value.shape.strides != node.shape.strides:
        return Refusal("layout-unsupported", "the instruction changes the layout", node.name)
    destination = channels_second(node)
    view = find_operand(node, number, entry.dtypes, lambda _: False, lambda value: value.is_result)
    source = read_where_given(value, entry)
    if view is None or source is None:
        return Refusal("not-in-memory", "what is compared is not in memory", node.name)
    dimensions = project(view, node.shape, destination)
    source_dimensions = project(source, node.shape, destination)
    if (
        dimensions is None
        or source_dimensions is None
        or [size for size, _ in source_dimensions] != [size for size, _ in destination]
    ):
        return Refusal("layout-unsupported", "an operand repeats along a dimension", node.name)
    operand = View(view.node, dense(dimensions, destination))
    return Anchor(
        node=node,
        entry=entry,
        source=View(source.node, dense(source_dimensions, destination)),
        weights=None,
        destination=destination,
        channel=1,
        multiply_adds=node.shape.elements,
        roles=("src", "", "dst"),
        first=PostOp("binary", "max", "max({}, {operand})", operand=operand),
        formula="x",
    )
