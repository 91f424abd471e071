"""Reductions over keys: one reduce, or XLA's tree of a reduce-window and a reduce."""

from __future__ import annotations

from typing import NamedTuple

from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.match.reduction import reduces, windows_before


class Reduction(NamedTuple):
    """A reduction: its source, reduced and kept dimensions."""

    source: Node
    dimensions: tuple[int, ...]
    kept: tuple[int, ...]
    """The source's dimension for each of the result's."""
    nodes: tuple[Node, ...]


def match_reduction(node: Node, graph: FlatGraph, word: str) -> Reduction | None:
    """The reduction that `node` is, if it is a "maximum" or a sum ("add") from its neutral element."""
    if node.opcode != "reduce" or not reduces(node, graph, word):
        return None
    reduced = tuple(node.proto.dimensions[:])
    windows = windows_before(node, graph, word)
    if windows is None:
        if node.operands[0].opcode == "reduce-window" and reduces(node.operands[0], graph, word):
            return None
        source, nodes = node.operands[0], (node,)
    else:
        source, nodes = windows.operands[0], (node, windows)
    kept = tuple(number for number in range(len(source.shape.dimensions)) if number not in reduced)
    return Reduction(source, reduced, kept, nodes)
