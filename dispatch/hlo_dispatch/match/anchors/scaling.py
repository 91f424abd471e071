"""A product of two values, element by element, in a kernel's terms.

y[n, c, x] = src[n, c, x] · other[n, c]
"""

from __future__ import annotations

from hlo_dispatch.errors import Refusal
from hlo_dispatch.hlo.flat import Node
from hlo_dispatch.match.anchors.anchor import WIDENING, Anchor
from hlo_dispatch.match.anchors.elementwise import has_channels, read_elementwise
from hlo_dispatch.match.function import scalar_constant
from hlo_dispatch.pattern.table import AnchorKind


def is_scaling(node: Node) -> bool:
    """Whether an instruction multiplies two values, neither of them a number."""
    if node.opcode != "multiply" or not has_channels(node):
        return False
    return node.operands[0] is not node.operands[1] and all(scalar_constant(o) is None for o in node.operands)


def read_scaling(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Describe `node`, a product element by element, for the kernel."""
    # What repeats is the other one.
    scaled, other = sorted(node.operands, key=_is_repeated)
    return read_elementwise(node, scaled, other, "mul", "({} · {operand})", entry)


def _is_repeated(node: Node) -> bool:
    while node.opcode in WIDENING:
        node = node.operands[0]
    return node.opcode == "broadcast"
