"""Reductions over keys: in one instruction, or in two, the first of which reduces windows, as XLA's trees do."""

from __future__ import annotations

from typing import NamedTuple

from hlo_dispatch.hlo.flat import FlatGraph, Node
from hlo_dispatch.match.function import scalar_constant
from hlo_dispatch.match.reducing import LARGEST_NEGATIVE, applied_by


class Reduction(NamedTuple):
    """What is reduced, and along which of its dimensions."""

    source: Node
    dimensions: tuple[int, ...]
    kept: tuple[int, ...]
    """The source's dimension for each of the result's."""
    nodes: tuple[Node, ...]


def read_reduction(node: Node, graph: FlatGraph, word: str) -> Reduction | None:
    """The reduction that `node` is, if it is a "maximum" or a sum ("add") from its neutral element on."""
    if node.opcode != "reduce" or not _reduces(node, graph, word):
        return None
    reduced = tuple(node.proto.dimensions[:])
    source, nodes = node.operands[0], (node,)
    if source.opcode == "reduce-window" and _reduces(source, graph, word):
        if not _tiles(source, reduced):
            return None
        source, nodes = source.operands[0], (node, source)
    kept = tuple(number for number in range(len(source.shape.dimensions)) if number not in reduced)
    return Reduction(source, reduced, kept, nodes)


def _reduces(node: Node, graph: FlatGraph, word: str) -> bool:
    if len(node.operands) != 2 or node.proto.control_predecessor_ids or not node.shape.is_array:
        return False
    start = scalar_constant(node.operands[1])
    if start is None or not (start == 0 if word == "add" else start <= LARGEST_NEGATIVE):
        return False
    return applied_by(node, graph) == word


def _tiles(node: Node, reduced: tuple[int, ...]) -> bool:
    """Whether the windows lie side by side along the reduced dimensions and leave nothing out."""
    source = node.operands[0].shape.dimensions
    for number, window in enumerate(node.proto.window.dimensions):
        if window.window_reversal or window.window_dilation > 1 or window.base_dilation > 1:
            return False
        if number not in reduced:
            if (window.size, window.stride, window.padding_low, window.padding_high) != (1, 1, 0, 0):
                return False
            continue
        covered = node.shape.dimensions[number] * window.size
        padded = window.padding_low + source[number] + window.padding_high
        if window.stride != window.size or covered != padded or min(window.padding_low, window.padding_high) < 0:
            return False
    return True
