"""In-place updates: the instructions that overwrite an operand, as XLA has decided, and the operands' numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hlo_dispatch.analysis.peeling import PEEL_ROUNDING_AND_LAYOUTS, peel_instruction
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.task_partitions import is_partitioned

# Instructions that write their result, or a part of it, over an operand, and those that may call such ones.
UPDATES = frozenset(("dynamic-update-slice", "scatter"))
_IN_PLACE = UPDATES | frozenset("async-start async-update call conditional sort while".split())


def writes_in_place(module: Module, instruction: InstructionProto) -> bool:
    """Whether the instruction may overwrite an operand that XLA has not copied for it."""
    if instruction.opcode == "fusion":
        return not UPDATES.isdisjoint(module.opcodes_of(instruction.called_computation_ids[0]))
    return instruction.opcode in _IN_PLACE or len(instruction.output_operand_aliasing) > 0


def written_operands(module: Module, instruction: InstructionProto) -> Collection[int]:
    """Numbers of the operands that an in-place update may overwrite."""
    if instruction.opcode == "fusion":
        fused = module.computations[instruction.called_computation_ids[0]].instructions[:]
        if not any(inner.opcode == "fusion" for inner in fused):
            return updated_parameters(fused)
    return _targets(instruction)


def updated_parameters(fused: Iterable[InstructionProto]) -> set[int]:
    """Numbers of the parameters that a fused computation without inner fusions may overwrite."""
    by_id = {instruction.id: instruction for instruction in fused}
    found: set[int] = set()
    for update in by_id.values():
        for number in _targets(update) if update.opcode in UPDATES else ():
            target = peel_instruction(by_id[update.operand_ids[number]], PEEL_ROUNDING_AND_LAYOUTS, by_id)
            if target.opcode == "parameter":
                found.add(target.parameter_number)
    return found


def _targets(instruction: InstructionProto) -> range:
    # A dynamic-update-slice overwrites its first operand only.
    return range(1 if instruction.opcode == "dynamic-update-slice" else len(instruction.operand_ids))


def variant_elements(body: ComputationProto) -> list[int]:
    """Indices of the elements of a loop's state that the body does not return unchanged."""
    by_id = {instruction.id: instruction for instruction in body.instructions[:]}
    root = by_id[body.root_id]
    if root.opcode != "tuple":
        return list(range(len(root.shape.tuple_shapes)))
    returned = [by_id[operand] for operand in root.operand_ids[:]]
    return [
        number
        for number, value in enumerate(returned)
        if value.opcode != "get-tuple-element"
        or value.tuple_index != number
        or by_id[value.operand_ids[0]].opcode != "parameter"
    ]


def operand_updated_in_place(instruction: InstructionProto, fused: ComputationProto | None) -> int | None:
    """Number of the operand that XLA changes where it lies: it writes the updated elements and reads none of them.

    Args:
        fused: the computation of a fusion.
    """
    if fused is None:
        return 0 if instruction.opcode == "dynamic-update-slice" else None
    # XLA's code generator updates in place at the root of a loop fusion that is not partitioned, a parameter directly.
    if instruction.fusion_kind != "kLoop" or is_partitioned(instruction):
        return None
    by_id = {inner.id: inner for inner in fused.instructions[:]}
    root = by_id[fused.root_id]
    if root.opcode != "dynamic-update-slice" or by_id[root.operand_ids[0]].opcode != "parameter":
        return None
    target = root.operand_ids[0]
    uses = sum(inner.operand_ids[:].count(target) for inner in by_id.values())
    return by_id[target].parameter_number if uses == 1 else None
