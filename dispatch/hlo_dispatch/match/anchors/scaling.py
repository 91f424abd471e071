"""Normalizer of scaling as a glue op: an elementwise product of two values.

    y[n, c, x] = src[n, c, x] · other[n, c]

An argument of the program may be multiplied with a number, as images are that are normalized ahead of the first layer.
"""

from __future__ import annotations

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.peeling import PEEL_BITCASTS, is_broadcast, peel_node
from hlo_dispatch.analysis.scalar_constants import scalar_constant
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings
from hlo_dispatch.match.anchors.elementwise import has_channels, normalize_elementwise
from hlo_dispatch.pattern.table import AnchorKind


def is_scaling(node: Node) -> bool:
    """Whether an instruction multiplies two values, neither of them a number, or is a leading scaling."""
    if node.opcode != "multiply" or not has_channels(node) or node.operands[0] is node.operands[1]:
        return False
    return all(scalar_constant(operand) is None for operand in node.operands) or is_leading_scaling(node)


def is_leading_scaling(node: Node) -> bool:
    """Whether an instruction multiplies a dynamic program argument with a number."""
    # A static value is computed once.
    if node.opcode != "multiply" or not has_channels(node):
        return False
    values = [operand for operand in node.operands if scalar_constant(operand) is None]
    return len(values) == 1 and peel_node(values[0], PEEL_BITCASTS).opcode == "parameter"


def normalize_scaling(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, an elementwise product, for the kernel."""
    # A broadcast is the second operand.
    scaled, other = sorted(node.operands, key=is_broadcast)
    return normalize_elementwise(node, scaled, other, "mul", "({} · {operand})", entry, around.results)
