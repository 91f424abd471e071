"""Gathering of small loops: XLA compiles a long loop of small iterations into a single function, a small call.

XLA:CPU starts every instruction of a loop's body on its own, which takes longer than a few elements do. It makes small
calls of some loops itself (small_calls.py), of fewer or of more by its version; this pass makes them of the others that
hold nothing for a kernel. Whether that is faster differs between machines and loops, and a whole-program trial decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo_dispatch.analysis.in_place_updates import operand_updated_in_place
from hlo_dispatch.analysis.loop_nest import trip_count
from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import SMALL_CALL, Module, is_small_call
from hlo_dispatch.ir.opcode import CONTROL_FLOW, LOOP_FUSIBLE
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.ir.task_partitions import is_partitioned
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.selection.decide import MEASURING

LEAST_TRIPS = 64
"""Minimum trip count: shorter loops gain less than their program notices."""
MOST_BYTES = 64 << 10
"""Maximum bytes that an iteration reads and writes: more of them are work for several threads."""
_FREE = frozenset(("bitcast", "constant", "get-tuple-element", "parameter", "tuple"))
_SUPPORTED = LOOP_FUSIBLE | CONTROL_FLOW | _FREE | {"fusion"}
"""What a small call may hold: sorts, scatters and calls of libraries it may not."""


def gather_small_loops(module: Module, context: PassContext) -> set[int]:
    """Make a small call of each small loop, outer loops first."""
    if context.planner.policy not in MEASURING or "while" not in module.opcodes:
        return set()
    editors: list[Editor] = []
    pending, seen = [module.entry.id], set[int]()
    while pending:
        caller = module.computations[pending.pop()]
        if caller.id in seen:
            continue
        seen.add(caller.id)
        if module.opcodes_of(caller.id).isdisjoint(CONTROL_FLOW):
            continue
        loops = [i for i in caller.instructions[:] if i.opcode == "while" and _is_small(module, i, context)]
        if loops:
            editors.append(_gathered(module, caller, loops))
        done = {loop.id for loop in loops}
        for instruction in caller.instructions[:]:
            if instruction.opcode in CONTROL_FLOW and instruction.id not in done and not is_small_call(instruction):
                pending += instruction.called_computation_ids[:]
    if editors:
        context.keep_stock(module)
        context.needs_trial = not context.is_moved
        context.is_moved = True
    return commit(module, editors)


def _is_small(module: Module, loop: InstructionProto, context: PassContext) -> bool:
    if (trip_count(loop) or 0) < LEAST_TRIPS:
        return False
    instructions = list(_inside(module, loop))
    if any(i.opcode not in _SUPPORTED or i.fusion_kind == "kCustom" or is_partitioned(i) for i in instructions):
        return False
    opcodes = {i.opcode for i in instructions}
    return not context.planner.may_match(opcodes, is_small=True) and _bytes(module, loop) <= MOST_BYTES


def _inside(module: Module, instruction: InstructionProto) -> Iterator[InstructionProto]:
    """The instructions of everything that an instruction calls."""
    for called in instruction.called_computation_ids[:]:
        for inner in module.computations[called].instructions[:]:
            yield inner
            yield from _inside(module, inner)


def _bytes(module: Module, instruction: InstructionProto) -> int:
    """Bytes that the computations of a loop, branch or call read and write; inner loops count once."""
    total = 0
    for called in instruction.called_computation_ids[:]:
        by_id = {inner.id: inner for inner in module.computations[called].instructions[:]}
        for inner in by_id.values():
            if inner.opcode in CONTROL_FLOW:
                total += _bytes(module, inner)
            elif inner.opcode not in _FREE:
                total += _bytes_accessed(module, inner, by_id)
    return total


def _bytes_accessed(module: Module, instruction: InstructionProto, by_id: Mapping[int, InstructionProto]) -> int:
    """Bytes that one instruction reads and writes: of what is sliced or updated in place only that part."""
    fused = module.computations[instruction.called_computation_ids[0]] if instruction.opcode == "fusion" else None
    updated = operand_updated_in_place(instruction, fused)
    if updated is None:
        total = _size(instruction.shape)
    elif fused is None:
        total = _size(by_id[instruction.operand_ids[1]].shape)
    else:
        inner = {i.id: i for i in fused.instructions[:]}
        total = _size(inner[inner[fused.root_id].operand_ids[1]].shape)
    for number, operand in enumerate(instruction.operand_ids[:]):
        if number != updated:
            total += _bytes_read(instruction, fused, number, by_id[operand].shape)
    return total


def _bytes_read(instruction: InstructionProto, fused: ComputationProto | None, number: int, operand: ShapeProto) -> int:
    whole = _size(operand)
    if fused is None:
        return min(whole, _size(instruction.shape)) if instruction.opcode == "dynamic-slice" else whole
    (parameter,) = (i.id for i in fused.instructions[:] if i.opcode == "parameter" and i.parameter_number == number)
    users = [i for i in fused.instructions[:] if parameter in i.operand_ids[:]]
    is_sliced = all(user.opcode == "dynamic-slice" for user in users)
    return min(whole, sum(_size(user.shape) for user in users)) if is_sliced else whole


def _size(shape: ShapeProto) -> int:
    return sum(shape_of(part).bytes for part in shape.tuple_shapes[:] or (shape,))


def _gathered(module: Module, caller: ComputationProto, loops: list[InstructionProto]) -> Editor:
    """A draft of the caller in which each of these loops is in a computation of its own, called as a small call."""
    editor = Editor(module, caller)
    replacement: dict[int, int] = {}
    for loop in loops:
        inner = InstructionBuilder.of_new_computation(module, f"{loop.name}_computation", caller)
        state = inner.parameter(0, loop.shape)
        editor.computations.append(inner.finished(inner.clone(loop, [state.id]).id))
        call = editor.after(loop.id, loop).make("call", loop.shape, *loop.operand_ids[:], stem=loop.name)
        call.called_computation_ids.append(editor.computations[-1].id)
        call.frontend_attributes.map.add(key=SMALL_CALL, value="true")
        call.control_predecessor_ids[:] = loop.control_predecessor_ids[:]
        replacement[loop.id] = call.id
    for identifier, call in replacement.items():
        editor.replace_all_uses_with(identifier, call)
        editor.erase(identifier)
    editor.redirect_control_dependencies(replacement)
    return editor
