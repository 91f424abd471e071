"""Calls written out where they stand, as XLA does before it optimizes anything.

A module that was dumped before that has an activation, a layer, whatever was jitted on its own, behind a `call`, where
no match looks. Calls that XLA leaves in optimized modules mean something (a small call, a task of several threads)
and stay.
"""

from __future__ import annotations

from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

# A call as the wire has it: field 2, four bytes. Most modules have none, and need not be read for it.
_CALL = b"\x12\x04call"
_MOST_COPIES = 100_000
"""Instructions: calls of calls of calls multiply."""
_TALKING = ("all-", "collective-", "reduce-scatter", "send", "recv", "infeed", "outfeed", "partition-id", "replica-id")
_PARALLEL = "parallel_"
"""How XLA's CPU compiler names what it runs on several threads."""


def inlined(serialized: bytes) -> bytes:
    """The serialized HloModuleProto without plain calls; the same bytes where it has none.

    Raises:
        ModuleError: the bytes are not a module.
    """
    if _CALL not in serialized:
        return serialized
    module = Module.from_bytes(serialized)
    if module.proto.schedule:
        return serialized  # compiled already: what is called is called for a reason
    left, changed = _MOST_COPIES, False
    # Callees stand before their callers: what is copied has no calls of its own any more.
    for computation in module.proto.computations[:]:
        copied = _inline_into(module, computation, left)
        left -= copied or 0
        changed |= copied is not None
    if not changed:
        return serialized
    reached = module.reached()
    for place in reversed(range(len(module.proto.computations))):
        if module.proto.computations[place].id not in reached:
            del module.proto.computations[place]
    return module.to_bytes()


def _inline_into(module: Module, computation: ComputationProto, left: int) -> int | None:
    """Replace the plain calls of one computation; returns how many instructions were copied, None without a call."""
    calls = [i for i in computation.instructions[:] if i.opcode == "call" and _is_plain(module, computation, i)]
    count = sum(len(module.computations[call.called_computation_ids[0]].instructions) for call in calls)
    if not calls or count > left:
        return None
    plain = {call.id for call in calls}
    fresh = max(instruction.id for instruction in computation.instructions[:]) + 1
    stands_for: dict[int, int] = {}
    result: list[InstructionProto] = []
    for instruction in computation.instructions[:]:
        instruction.operand_ids[:] = [stands_for.get(operand, operand) for operand in instruction.operand_ids[:]]
        if instruction.id not in plain:
            result.append(instruction)
            continue
        copies, root = _copied(module, instruction, fresh)
        stands_for[instruction.id] = root
        result += copies
        fresh += len(copies)
    computation.root_id = stands_for.get(computation.root_id, computation.root_id)
    kept = [copy_of(instruction) for instruction in result]
    del computation.instructions[:]
    computation.instructions.extend(kept)
    return count


def _copied(module: Module, call: InstructionProto, fresh: int) -> tuple[list[InstructionProto], int]:
    """The instructions that a call stands for, with ids from `fresh` on, and the id of its result."""
    called = module.computations[call.called_computation_ids[0]]
    ids: dict[int, int] = {}
    copies: list[InstructionProto] = []
    for instruction in called.instructions[:]:
        if instruction.opcode == "parameter":
            ids[instruction.id] = call.operand_ids[instruction.parameter_number]
            continue
        copy = copy_of(instruction)
        copy.id = ids[instruction.id] = fresh + len(copies)
        copy.name = module.fresh_name(instruction.name)
        copy.operand_ids[:] = [ids[operand] for operand in instruction.operand_ids[:]]
        copy.control_predecessor_ids[:] = [ids[other] for other in instruction.control_predecessor_ids[:]]
        copies.append(copy)
    return copies, ids[called.root_id]


def _is_plain(module: Module, caller: ComputationProto, call: InstructionProto) -> bool:
    """Whether a call means nothing but what it calls, and that may be written out once more."""
    if len(call.called_computation_ids) != 1 or call.frontend_attributes.map or call.backend_config:
        return False
    if call.control_predecessor_ids or any(call.id in i.control_predecessor_ids for i in caller.instructions[:]):
        return False
    called = module.computations[call.called_computation_ids[0]]
    root = next(instruction for instruction in called.instructions[:] if instruction.id == called.root_id)
    return (
        root.shape == call.shape
        and not root.backend_config
        and called.execution_thread == caller.execution_thread
        and not called.name.startswith(_PARALLEL)
        # A fusion has its computation to itself, and a channel its number.
        and not any(i.opcode == "fusion" or i.opcode.startswith(_TALKING) for i in called.instructions[:])
        and not any(i.opcode == "parameter" and i.control_predecessor_ids for i in called.instructions[:])
    )
