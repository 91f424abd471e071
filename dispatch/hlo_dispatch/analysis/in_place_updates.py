"""In-place updates: which instructions write over an operand, as XLA has decided, and over which."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto

# Instructions that write (a part of) their result over an operand, and those that call others that may.
UPDATES = frozenset(("dynamic-update-slice", "scatter"))
_IN_PLACE = UPDATES | frozenset("async-start async-update call conditional sort while".split())
# What an update's target may be under another name or in another layout.
_SAME_VALUE = frozenset("bitcast convert copy reshape transpose".split())


def writes_in_place(module: Module, instruction: InstructionProto) -> bool:
    """Whether the instruction may write over an operand that XLA has not copied for it."""
    if instruction.opcode == "fusion":
        fused = module.computations[instruction.called_computation_ids[0]]
        return any(inner.opcode in UPDATES for inner in fused.instructions[:])
    return instruction.opcode in _IN_PLACE or len(instruction.output_operand_aliasing) > 0


def written_operands(module: Module, instruction: InstructionProto) -> Collection[int]:
    """The numbers of the operands that an instruction which writes in place may write over."""
    if instruction.opcode == "fusion":
        fused = module.computations[instruction.called_computation_ids[0]].instructions[:]
        if not any(inner.opcode == "fusion" for inner in fused):
            return updated_parameters(fused)
    return _targets(instruction)


def updated_parameters(fused: Iterable[InstructionProto]) -> set[int]:
    """The numbers of the parameters that a fused computation may write over; no fusion is inside of it."""
    by_id = {instruction.id: instruction for instruction in fused}
    found: set[int] = set()
    for update in by_id.values():
        for number in _targets(update) if update.opcode in UPDATES else ():
            target = by_id[update.operand_ids[number]]
            while target.opcode in _SAME_VALUE:
                target = by_id[target.operand_ids[0]]
            if target.opcode == "parameter":
                found.add(target.parameter_number)
    return found


def _targets(instruction: InstructionProto) -> range:
    # An update writes over its first operand; the rest it only reads.
    return range(1 if instruction.opcode == "dynamic-update-slice" else len(instruction.operand_ids))
