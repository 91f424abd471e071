"""Normalizer of int8 matrix products whose sums are converted to f32."""

from __future__ import annotations

from dataclasses import replace

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor
from hlo_dispatch.match.anchors.dot import normalize_dot_of_any_type
from hlo_dispatch.match.anchors.integer_sums import as_numbers
from hlo_dispatch.pattern.op_kinds import INTEGER_TYPES
from hlo_dispatch.pattern.table import AnchorKind


def normalize_integer_product(node: Node, entry: AnchorKind) -> Anchor | Refusal:
    """Normalizes `node`, and the convert behind it, for the matmul kernel."""
    numbers = as_numbers(node)
    if isinstance(numbers, Refusal):
        return numbers
    anchor = normalize_dot_of_any_type(node, entry)
    if isinstance(anchor, Refusal):
        return anchor
    if {anchor.source.element_type, anchor.weights and anchor.weights.element_type} - INTEGER_TYPES:
        return Refusal("dot-dimensions", "an operand's integers do not lie as the product reads them", node.name)
    return replace(anchor, covers=numbers, value=numbers[-1])
