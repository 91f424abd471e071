"""Loop weights: the large arrays that each iteration of a long loop reads as a whole and none changes.

They count as static inside the loop, so that kernels' weights are prepacked in front of it, in each run of the program.
An array that is read slice after slice is none: each slice is read once.
"""

from __future__ import annotations

from hlo_dispatch.analysis.binding_time import is_parameter_element, static_by_computation, static_inputs_by_computation
from hlo_dispatch.analysis.flat_graph import FlatGraph, Node
from hlo_dispatch.analysis.in_place_updates import variant_elements
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.shape import FLOAT_TYPES
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.loop_state import can_change_state

LEAST_TRIPS = 8
"""Minimum trip count: prepacking reads and writes all weights, in memory that is new in each run."""
LEAST_BYTES = 64 << 10
"""Smaller weights fit into a core's own cache, where reordering them takes a few microseconds."""


def find_loop_weights(module: Module, context: PassContext) -> set[int]:
    """Find the weights of each long loop, and what is static by them; changes nothing."""
    graphs = {graph.computation.id: graph for graph, _ in context.graphs}
    for caller, small in context.graphs if "while" in module.opcodes else ():
        if small or "while" not in module.opcodes_of(caller.computation.id):
            continue
        for loop in caller.instruction_of.values():
            if loop.opcode != "while" or (trip_count(loop) or 0) < LEAST_TRIPS:
                continue
            body = graphs[loop.called_computation_ids[0]]
            weights = _weights(body)
            if weights and can_change_state(module, Editor(module, caller.computation), loop, 0, body):
                context.loop_weights[body.computation.id] = weights
    if context.loop_weights:
        inputs = static_inputs_by_computation(module, frozenset(), graphs.__getitem__, context.loop_weights)
        for identifier, static in static_by_computation(graphs, inputs).items():
            graphs[identifier].static = static
    return set()


def _weights(body: FlatGraph) -> frozenset[int]:
    """Tuple indices of the weights of a loop with this body."""
    changing = variant_elements(body.computation)
    return frozenset(
        node.proto.tuple_index
        for node in body.nodes
        if is_parameter_element(node)
        and node.shape.element_type in FLOAT_TYPES
        and node.shape.bytes >= LEAST_BYTES
        and node.proto.tuple_index not in changing
        and _is_read_whole(node)
        and _is_read_in_each_iteration(node)
    )


def _is_read_whole(node: Node) -> bool:
    return all(
        user.opcode not in ("dynamic-slice", "gather") and (user.opcode != "bitcast" or _is_read_whole(user))
        for user in node.users
    )


def _is_read_in_each_iteration(node: Node) -> bool:
    """Whether something other than branches reads it; the body's result counts as no reader."""
    return any(
        user.opcode != "conditional" and (user.opcode not in ("bitcast", "tuple") or _is_read_in_each_iteration(user))
        for user in node.users
    )
