"""Loop state: the tuple that a loop carries or that a branch takes, and edits of its elements and their types."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from hlo_dispatch.analysis.flat_graph import FlatGraph
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import CALLS_NOTHING
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, LiteralProto, ShapeProto
from hlo_dispatch.ir.shape import row_major


def can_change_state(
    module: Module, caller: Editor, instruction: InstructionProto, number: int, callee: FlatGraph
) -> bool:
    """Whether the type of the tuple may change: nothing else calls the callees, takes the tuple or reads it as a whole.

    Args:
        instruction: a `while` or a `conditional` of the caller.
        number: number of the operand that becomes the callee's parameter.
        callee: the loop's body, or the branch.
    """
    is_loop = instruction.opcode == "while"
    if caller.instructions[instruction.operand_ids[number]].opcode != "tuple":
        return False
    parameter = next(node for node in callee.nodes if node.opcode == "parameter")
    if any(user.opcode != "get-tuple-element" for user in parameter.users):
        return False
    called = {*instruction.called_computation_ids[:]} if is_loop else {callee.computation.id}
    if not is_loop:
        return count_calls(module, called) <= 1
    if caller.users(instruction.operand_ids[number]) != [instruction.id]:
        return False
    users = [caller.instructions[user] for user in caller.users(instruction.id)]
    escapes = caller.root_id == instruction.id or any(user.opcode != "get-tuple-element" for user in users)
    return not escapes and callee.root.opcode == "tuple" and count_calls(module, called) <= 1


def count_calls(module: Module, called: AbstractSet[int]) -> int:
    """Number of the module's instructions that call one of these computations."""
    callers = (i for i in module.instructions if i.opcode not in CALLS_NOTHING)
    return sum(not called.isdisjoint(i.called_computation_ids[:]) for i in callers)


def replace_elements(
    caller: Editor, instruction: InstructionProto, number: int, elements: Mapping[int, InstructionProto]
) -> InstructionProto:
    """Give a loop or a branch a tuple with these elements, by index; returns the tuple.

    The elements that were there stay, even where nothing uses them any more.
    """
    operand = caller.instructions[instruction.operand_ids[number]]
    operands, shapes = operand.operand_ids[:], operand.shape.tuple_shapes[:]
    for index, value in elements.items():
        operands[index:], shapes[index:] = (
            [value.id, *operands[index + 1 :]],
            [value.shape, *shapes[index + 1 :]],
        )
    state = caller.before(instruction.id, operand).tuple(operands, shapes, operand.name)
    caller.set_operand(instruction.id, number, state.id)
    if instruction.opcode == "while":
        caller.mutable(instruction.id).shape.CopyFrom(state.shape)
    if not caller.users(operand.id):
        caller.erase(operand.id)
    return state


def placeholder(builder: InstructionBuilder) -> InstructionProto:
    """A scalar in place of a dead tuple element; copied, because XLA does not let a loop carry a constant."""
    shape = row_major("pred", ())
    constant = builder.constant(shape, LiteralProto(shape=shape.to_proto(), preds=[False]), "placeholder")
    return builder.make("copy", shape, constant.id, stem="placeholder")


def retype(computation: ComputationProto, state: ShapeProto, *, is_result: bool) -> None:
    """Set the new tuple type on a computation's parameter, and on its result."""
    for instruction in computation.instructions[:]:
        if instruction.opcode == "parameter" or (is_result and instruction.id == computation.root_id):
            instruction.shape.CopyFrom(state)
    computation.program_shape.parameters[0].CopyFrom(state)
    if is_result:
        computation.program_shape.result.CopyFrom(state)


def commit_loop(module: Module, body: Editor, caller: Editor, loop: int) -> set[int]:
    """Write back the drafts of a loop's body and of the computation around it, where the loop's tuple has new types.

    Returns:
        ids of the computations that are new or changed.
    """
    instruction = caller.instructions[loop]
    changed = commit(module, [body, caller])
    for is_body, called in zip((True, False), instruction.called_computation_ids[:], strict=True):
        retype(module.computations[called], instruction.shape, is_result=is_body)
        changed.add(called)
    return changed
