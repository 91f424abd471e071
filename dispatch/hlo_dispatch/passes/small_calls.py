"""Undoing of small calls: XLA compiles a call that reaches a kernel call like any other, and a loop out of which code
moves is no call at all.

XLA:CPU compiles a small call, a `call` with a frontend attribute that says so, into a single function for one thread.
That spares short loops the overhead of XLA's runtime, but cannot contain custom-calls.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_dispatch.analysis.counted_loop import called_loop
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import SMALL_CALL, Module, is_small_call
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.passes.loop_state import count_calls

LEAST_BYTES_MOVED = 1 << 20
"""Minimum bytes that an iteration reads or writes less for its loop to be no small call any more: XLA's runtime then
starts each of the body's instructions on its own."""


def undo_small_calls(module: Module, context: PassContext) -> set[int]:
    """Remove the attribute of each small call that reaches a computation with kernel calls."""
    dispatched = {plan.graph.computation.id for plan in context.plans if plan.dispatched}
    reaching = {computation.id for computation, small in module.control_flow_computations() if small} & dispatched
    undone: set[int] = set()
    if not reaching:
        return undone
    for computation in module.proto.computations[:]:  # callees come first
        for instruction in computation.instructions[:]:
            if not reaching.isdisjoint(instruction.called_computation_ids[:]):
                reaching.add(computation.id)
                if is_small_call(instruction):
                    attributes = instruction.frontend_attributes.map
                    place = next(place for place, entry in enumerate(attributes) if entry.key == SMALL_CALL)
                    del attributes[place]
                    undone.add(computation.id)
    module.index()
    return undone


def inline_small_loops(
    module: Module, caller: int, is_wanted: Callable[[InstructionProto], bool], context: PassContext
) -> set[int]:
    """Put loops in the place of the small calls that call nothing else, so that passes can change their state.

    Args:
        caller: id of the computation with the calls.
        is_wanted: whether to do that with a loop.
    """
    if "call" not in module.opcodes_of(caller):
        return set()
    computation = module.computations[caller]
    calls = [instruction for instruction in computation.instructions[:] if instruction.opcode == "call"]
    wanted = {
        call.id: loop
        for call in calls
        if (loop := _loop_of_small_call(module, call)) is not None
        and is_wanted(loop)
        and count_calls(module, {*call.called_computation_ids[:]}) == 1  # last: it looks through the module
    }
    if not wanted:
        return set()
    context.keep_stock(module)
    editor = Editor(module, computation)
    for call, loop in wanted.items():
        inlined = editor.after(call, loop).clone(loop, editor.instructions[call].operand_ids[:])
        editor.replace_all_uses_with(call, inlined.id)
        editor.redirect_control_dependencies({call: inlined.id})
        editor.erase(call)
    return commit(module, [editor])


def _loop_of_small_call(module: Module, instruction: InstructionProto) -> InstructionProto | None:
    if not is_small_call(instruction) or instruction.control_predecessor_ids:
        return None
    return called_loop(module, instruction)
