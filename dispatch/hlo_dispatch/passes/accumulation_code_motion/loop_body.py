"""Loop body without its moved accumulations: it writes the new stacks, each one slice in an iteration, in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.literals import index_literal
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto
from hlo_dispatch.ir.shape import row_major
from hlo_dispatch.passes.accumulation_code_motion.motion_plan import MotionPlan, Stack
from hlo_dispatch.passes.cloned_values import clone_index
from hlo_dispatch.passes.module_rewriter import ComputationRewriter


@dataclass(frozen=True)
class StateLayout:
    """Which elements of the loop's tuple the new stacks are: those of moved accumulators, then further ones."""

    stacks: dict[int, Stack]
    """Index in the tuple → the stack."""
    placeholders: Sequence[int]
    """Indexes of the elements that are of no use any more."""

    @classmethod
    def of(cls, plan: MotionPlan) -> StateLayout:
        dead = sorted(accumulator.index for accumulator in plan.accumulators)
        count = len(plan.instruction.shape.tuple_shapes)
        indices = [*dead, *range(count, count + len(plan.new_stacks))]
        return cls(dict(zip(indices, plan.new_stacks, strict=False)), dead[len(plan.new_stacks) :])


def draft_body(module: Module, plan: MotionPlan, layout: StateLayout, threads: int) -> Editor:
    """The loop's body without the accumulations, with the new stacks.

    Raises:
        RewriteUnsupported: an instruction has a control dependency on one that is removed.
    """
    graph = plan.loop.body
    covered = {node for one in plan.accumulators for node in one.covered}
    result_of = {one.index: one.result for one in plan.accumulators}
    rewriter = ComputationRewriter(module, graph, threads, covered=covered, results=result_of.values())
    editor = rewriter.editor
    (parameter,) = editor.parameters()

    def emit() -> int:
        added: list[int] = []
        for index, stack in layout.stacks.items():
            value = rewriter.identifier(stack.value)
            element = rewriter.near(stack.value).get_tuple_element(parameter.id, index, stack.shape, "stack")
            inner, operands = _update(rewriter, stack)
            identifier = rewriter.identifier(result_of[index]) if index in result_of else rewriter.fresh_id()
            rewriter.near(stack.value).fusion(
                inner, (element.id, value, *operands), stack.shape, stem="stack_update", identifier=identifier
            )
            editor.computations.append(inner)
            if index not in result_of:
                added.append(identifier)
        for index in layout.placeholders:
            identifier = rewriter.identifier(result_of[index])
            shape = row_major("pred", ())
            editor.after(parameter.id).get_tuple_element(parameter.id, index, shape, "placeholder", identifier)
        operands = [rewriter.identifier(graph.value_of[operand], operand) for operand in editor.root.operand_ids[:]]
        return editor.after(editor.root_id).tuple([*operands, *added], (), "state").id

    draft = rewriter.rewrite(emit)
    # The accumulators, whose places have other types.
    elements = {one.element for one in plan.accumulators}
    draft.remove_dead_code({identifier for identifier, node in graph.value_of.items() if node in elements})
    return draft


def _update(rewriter: ComputationRewriter, stack: Stack) -> tuple[ComputationProto, list[int]]:
    """The fused computation that writes a slice of a stack, and its operands behind the stack and the slice."""
    builder = InstructionBuilder.of_new_computation(
        rewriter.editor.module, "stack_update_computation", rewriter.editor.computation
    )
    array = builder.parameter(0, stack.shape).id
    value = builder.parameter(1, stack.value.shape).id
    number, operands = clone_index(rewriter, builder, stack.index, 2)
    index_type = stack.index.shape
    zero = builder.constant(index_type, index_literal(index_type.element_type, 0)).id
    slice_shape = replace(stack.shape, dimensions=(1, *stack.shape.dimensions[1:]))
    row = builder.make("bitcast", slice_shape, value).id
    others = [zero] * len(stack.value.shape.dimensions)
    return builder.finished(builder.make("dynamic-update-slice", stack.shape, array, row, number, *others).id), operands
