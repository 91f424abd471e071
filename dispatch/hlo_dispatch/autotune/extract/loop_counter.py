"""Loop counter: one more element of a `while` loop's state, which ends the loop after a number of iterations."""

from __future__ import annotations

from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, LiteralProto, ShapeProto
from hlo_dispatch.ir.shape import row_major, tuple_shape

_COUNT = row_major("s32", ())
_FLAG = row_major("pred", ())


def count_iterations(module: Module, computation: ComputationProto, loop: InstructionProto, count: int) -> bool:
    """Replace the condition of a loop in `computation`, in place: it runs `count` times.

    Returns:
        whether it could: the body returns a tuple, and no other instruction calls it.
    """
    body = module.computations[loop.called_computation_ids[0]]
    root = next(i for i in body.instructions[:] if i.id == body.root_id)
    if root.opcode != "tuple" or sum(body.id in i.called_computation_ids[:] for i in module.instructions) != 1:
        return False
    elements = [*loop.shape.tuple_shapes]
    state = tuple_shape([*elements, _COUNT.to_proto()])
    condition = _condition(module, body, state, count)
    outside, inside = Editor(module, computation), Editor(module, body)
    _carry(outside, loop, state, condition.id)
    _advance(inside, state)
    inside.computations.append(condition)
    commit(module, [inside, outside])
    module.index()
    body.program_shape.parameters[0].CopyFrom(state)
    body.program_shape.result.CopyFrom(state)
    return True


def _condition(module: Module, body: ComputationProto, state: ShapeProto, count: int) -> ComputationProto:
    builder = InstructionBuilder.of_new_computation(module, "counted_condition", body)
    parameter = builder.parameter(0, state, "counted_state").id
    counter = builder.get_tuple_element(parameter, len(state.tuple_shapes) - 1, _COUNT, "iteration").id
    compared = builder.make("compare", _FLAG, counter, _integer(builder, count), stem="counted_on")
    compared.comparison_direction = "LT"
    condition = builder.finished(compared.id)
    condition.program_shape.parameters.add().CopyFrom(state)
    condition.program_shape.parameter_names.append("counted_state")
    condition.program_shape.result.CopyFrom(_FLAG.to_proto())
    return condition


def _carry(editor: Editor, loop: InstructionProto, state: ShapeProto, condition: int) -> None:
    """Start the counter at zero, and give users the loop's state without it."""
    initial, elements = loop.operand_ids[0], [*loop.shape.tuple_shapes]
    before = editor.before(loop.id)
    parts = [before.get_tuple_element(initial, n, shape, "initial").id for n, shape in enumerate(elements)]
    zero = before.make("copy", _COUNT, _integer(before, 0), stem="first_iteration").id
    begin = before.make("tuple", state, *parts, zero, stem="counted_initial_state").id
    after = editor.after(loop.id)
    users, is_root = editor.users(loop.id), editor.root_id == loop.id
    results = [after.get_tuple_element(loop.id, n, shape, "final").id for n, shape in enumerate(elements)]
    final = after.tuple(results, elements, "uncounted_state").id
    for user in users:
        editor.replace_operands(user, {loop.id: final})
    if is_root:
        editor.root_id = final
    editor.set_operands(loop.id, [begin])
    counted = editor.mutable(loop.id)
    counted.shape.CopyFrom(state)
    counted.called_computation_ids[1] = condition


def _advance(editor: Editor, state: ShapeProto) -> None:
    """Add one to the counter in the loop's body."""
    (parameter,) = editor.parameters()
    last = editor.last()
    counter = last.get_tuple_element(parameter.id, len(state.tuple_shapes) - 1, _COUNT, "iteration").id
    following = last.make("add", _COUNT, counter, _integer(last, 1), stem="next_iteration").id
    editor.mutable(parameter.id).shape.CopyFrom(state)
    editor.set_operands(editor.root_id, [*editor.root.operand_ids[:], following])
    editor.mutable(editor.root_id).shape.CopyFrom(state)


def _integer(builder: InstructionBuilder, value: int) -> int:
    return builder.constant(_COUNT, LiteralProto(shape=_COUNT.to_proto(), s32s=[value]), "count").id
