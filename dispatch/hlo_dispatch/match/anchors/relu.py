"""Normalizer of relu as a glue op: the maximum of a value and a number.

    y[n, c, x] = max(src[n, c, x], number)

It is a separate op where its argument has other users, such as a residual add.
"""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings
from hlo_dispatch.match.anchors.elementwise import has_channels, normalize_elementwise
from hlo_dispatch.pattern.table import AnchorKind


def is_relu(node: Node) -> bool:
    """Whether an instruction is the maximum of a value and a number."""
    if node.opcode != "maximum" or not has_channels(node):
        return False
    return sum(scalar_constant(operand) is not None for operand in node.operands) == 1


def normalize_relu(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, the maximum of a value and a number, for the kernel."""
    value, number = sorted(node.operands, key=lambda operand: scalar_constant(operand) is not None)
    return normalize_elementwise(node, value, number, "max", "max({}, {operand})", entry, around.results)
