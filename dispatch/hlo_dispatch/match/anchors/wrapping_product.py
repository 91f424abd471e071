"""Normalizer of products of integers whose result stays integer: (batch…, M, K) · (batch…, K, N), modulo its bits.

Sums wrap around as XLA's do, so that they are the same in whatever order, and in 32 bits whatever the result has fewer
of.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.analysis.flat_graph import Node
from hlo_dispatch.analysis.strided_view import View
from hlo_dispatch.errors import Refusal
from hlo_dispatch.match.anchors.anchor import Anchor, Surroundings, converted_sums, sums_integers, unsupported_types
from hlo_dispatch.match.anchors.dot import anchor_of_product
from hlo_dispatch.pattern.op_kinds import WRAPPING_TYPES
from hlo_dispatch.pattern.table import AnchorKind


def is_wrapping_product(node: Node, around: Surroundings) -> bool:
    """Whether a dot's result stays integer; sums of eight bits that become numbers of f32 do not."""
    if node.shape.element_type not in WRAPPING_TYPES:
        return False
    return not sums_integers(node, around) or converted_sums(node, around) == ()


def normalize_wrapping_product(node: Node, entry: AnchorKind, around: Surroundings) -> Anchor | Refusal:
    """Normalizes `node`, an HLO dot of integers, for the kernel that wraps its sums."""
    refusal = unsupported_types(node, WRAPPING_TYPES)
    return refusal if refusal is not None else anchor_of_product(node, entry, around, _narrowest)


def _narrowest(sources: Sequence[View], weights: Sequence[View]) -> tuple[View, View]:
    """Each operand ahead of what widens it, which changes no integer."""
    return sources[-1], weights[-1]
