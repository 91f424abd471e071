"""Outlining of narrowed weights: the fusions that narrow frozen weights end where their narrow values begin to be read.

XLA fuses what narrows a weight (round, clamp, convert to integers) with what widens it again for a product. The
prologue computes the first half once; as one fusion the two would be measured with the work of both.
"""

from __future__ import annotations

from hlo_dispatch.analysis.binding_time import static_values
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.ir.editor import commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.module_rewriter import ComputationRewriter
from hlo_dispatch.passes.partition.frontier import find_partition


def outline_narrowed_weights(module: Module, context: PassContext) -> set[int]:
    """Make the values of narrowed weights, which the prologue will compute, results of fusions of their own."""
    if not context.widened:
        return set()
    graph = FlatGraph(module, module.entry)
    try:
        narrowed = _narrowed_inside_fusions(graph, context)
        if not narrowed:
            return set()
        rewriter = ComputationRewriter(module, graph, context.threads, covered=frozenset(narrowed))

        def emit() -> Node:
            for node in narrowed:
                rewriter.identifier(node)
            return graph.root

        return commit(module, [rewriter.rewrite(emit)])
    finally:
        graph.break_reference_cycles()


def _narrowed_inside_fusions(graph: FlatGraph, context: PassContext) -> list[Node]:
    static = static_values(graph, context.frozen, context.static_rule)
    frontier = find_partition(graph, context.frozen | context.widened, context.static_rule).frontier
    return [node for node in frontier if node.top_level_id is None and node not in static]
