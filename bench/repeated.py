"""Repeated call: a program that runs its only kernel call several times, for the overhead of one more call.

The time of a whole program holds JAX's own launch, which has nothing to do with dispatching. The difference between
a program with several calls and one with a single call does not.
"""

from __future__ import annotations

from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.async_padding import NAME as ASYNC_PADDING

CALLS, CALLS_OF_LONG, LONG = 9, 3, 1e-3
"""How many calls the longer program has; fewer of what takes longer than this, in seconds."""
_FREE = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element")


def only_call(serialized: bytes) -> bool:
    """Whether the entry of a module is one custom-call and nothing else that takes time, but for async padding."""
    instructions = Module.from_bytes(serialized).entry.instructions[:]
    taking_time = [i.opcode for i in instructions if i.opcode not in _FREE and not i.name.startswith(ASYNC_PADDING)]
    return taking_time == ["custom-call"]


def operands_of_call(serialized: bytes) -> list[int | None]:
    """Of each operand of a module's only call the number of the parameter that it is; None: it is none.

    A bitcast is the same memory.
    """
    by_id = {instruction.id: instruction for instruction in Module.from_bytes(serialized).entry.instructions}
    (call,) = (instruction for instruction in by_id.values() if instruction.opcode == "custom-call")
    found: list[int | None] = []
    for operand_id in call.operand_ids:
        source = by_id[operand_id]
        while source.opcode == "bitcast":
            source = by_id[source.operand_ids[0]]
        found.append(source.parameter_number if source.opcode == "parameter" else None)
    return found


def repeated(serialized: bytes, calls: int) -> Module:
    """The module with so many calls in place of its one, each after the one before, on the same operands.

    The result is the last call's: nobody reads the others', so that all may write to its memory, as a raw call that
    is repeated does.
    """
    module = Module.from_bytes(serialized)
    entry = module.entry
    instructions = entry.instructions[:]
    (position,) = (i for i, instruction in enumerate(instructions) if instruction.opcode == "custom-call")
    call = instructions[position]
    next_id = max(instruction.id for instruction in instructions) + 1
    for number in range(calls - 1):
        copy = type(call)()
        copy.CopyFrom(call)
        copy.id, copy.name = next_id + number, module.fresh_name(call.name)
        # Nothing uses the copies, and they are all alike: without an effect XLA would drop them.
        copy.custom_call_has_side_effect = True
        if number > 0:
            copy.control_predecessor_ids[:] = [copy.id - 1]
        entry.instructions.insert(position + number, copy)
    if calls > 1:
        call.control_predecessor_ids.append(next_id + calls - 2)
    return module
