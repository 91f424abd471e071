"""Clones of a loop body's or a branch's values: in the computation around it, and of indices in fused computations."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.analysis.binding_time import is_parameter_element
from hlo_dispatch.analysis.buffer_aliasing import NO_ALIASING
from hlo_dispatch.analysis.flat_graph import INSERTED_COPY, FlatGraph, Node
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.passes.module_rewriter import ComputationRewriter


def clone_into_caller(
    module: Module,
    graph: FlatGraph,
    values: Sequence[Node],
    caller: Editor,
    control_flow: int,
    elements: Sequence[int],
    threads: int,
) -> list[InstructionProto]:
    """Clone the instructions that compute values of a callee in front of the loop or branch that runs it.

    Args:
        graph: the callee's.
        values: values that depend on elements of its parameter and on constants alone.
        control_flow: id of the loop or branch.
        elements: ids of the caller's values that are the elements of the callee's parameter.

    Returns:
        the clones of the values.

    Raises:
        RewriteUnsupported: an instruction has a control dependency on one that the values depend on.
    """
    rewriter = ComputationRewriter(module, graph, threads, aliasing=NO_ALIASING)

    def emit() -> int:
        identifiers = [rewriter.identifier(value) for value in values]
        return rewriter.near(values[-1]).tuple(identifiers, (), "cloned_values").id

    draft = rewriter.rewrite(emit)
    value_ids = draft.root.operand_ids[:]  # copies of some, where they must not share a buffer
    draft.keep_reachable_from_root()
    parameters = {i.id for i in draft.parameters()}
    others = [i for i in draft.ordered() if i.id != draft.root_id and i.id not in parameters]
    ids = {
        i.id: elements[i.tuple_index]
        for i in others
        if i.opcode == "get-tuple-element" and i.operand_ids[0] in parameters
    }
    builder = caller.before(control_flow)
    caller.computations += [*builder.clone_all(others, ids), *draft.computations]
    return [caller.instructions[ids[identifier]] for identifier in value_ids]


def clone_index(
    rewriter: ComputationRewriter, builder: InstructionBuilder, index: Node, count: int
) -> tuple[int, list[int]]:
    """Clone what computes an index into a fused computation, from elements of the loop's tuple.

    Args:
        builder: the fused computation's.
        count: how many parameters that has already.

    Returns:
        id of the clone, and ids of the fusion's further operands.
    """
    operands: list[int] = []
    ids: dict[Node, int] = {}

    def clone_of(node: Node) -> int:
        if node not in ids:
            if is_parameter_element(node) or node.opcode == INSERTED_COPY:
                ids[node] = builder.parameter(count + len(operands), node.shape).id
                operands.append(rewriter.identifier(node))
            else:
                ids[node] = builder.clone(node.proto, [clone_of(operand) for operand in node.operands]).id
        return ids[node]

    return clone_of(index), operands
