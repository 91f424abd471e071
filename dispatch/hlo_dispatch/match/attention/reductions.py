"""Reductions over keys: one reduce, or XLA's tree of reduce-windows and a reduce."""

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
    nodes = (node, *windows)
    source = nodes[-1].operands[0]
    if source.opcode == "reduce-window" and reduces(source, graph, word):
        return None
    kept = tuple(number for number in range(len(source.shape.dimensions)) if number not in reduced)
    return Reduction(source, reduced, kept, nodes)
