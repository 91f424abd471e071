"""Inlining of plain calls, as XLA does before its optimizations.

A module that was dumped before them has activations, layers and other nested jits behind a `call`, which the matcher
does not enter. Calls in optimized modules have a meaning (a small call, a parallel task) and stay.
"""

from __future__ import annotations

from hlo_dispatch.ir.module import Module, copy_of
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

# A call in the wire format: field 2, four bytes. Most modules have none and are not parsed.
_CALL = b"\x12\x04call"
_MAX_COPIES = 100_000
"""Instructions: calls of calls of calls multiply."""
_COMMUNICATING = (
    "all-",
    "collective-",
    "reduce-scatter",
    "send",
    "recv",
    "infeed",
    "outfeed",
    "partition-id",
    "replica-id",
)
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
        return serialized  # compiled already: its calls have a meaning
    copies_left, changed = _MAX_COPIES, False
    # Callees precede callers: a copied computation contains no plain calls any more.
    for computation in module.proto.computations[:]:
        copied = _inline_into(module, computation, copies_left)
        copies_left -= copied or 0
        changed |= copied is not None
    if not changed:
        return serialized
    reached = module.reached()
    for place in reversed(range(len(module.proto.computations))):
        if module.proto.computations[place].id not in reached:
            del module.proto.computations[place]
    return module.to_bytes()


def _inline_into(module: Module, computation: ComputationProto, copies_left: int) -> int | None:
    """Replace the plain calls of one computation; returns how many instructions were copied, None without a call."""
    calls = [i for i in computation.instructions[:] if i.opcode == "call" and _is_plain(module, computation, i)]
    count = sum(len(module.computations[call.called_computation_ids[0]].instructions) for call in calls)
    if not calls or count > copies_left:
        return None
    plain = {call.id for call in calls}
    fresh = max(instruction.id for instruction in computation.instructions[:]) + 1
    replacement: dict[int, int] = {}
    result: list[InstructionProto] = []
    for instruction in computation.instructions[:]:
        instruction.operand_ids[:] = [replacement.get(operand, operand) for operand in instruction.operand_ids[:]]
        if instruction.id not in plain:
            result.append(instruction)
            continue
        copies, root = _copied(module, instruction, fresh)
        replacement[instruction.id] = root
        result += copies
        fresh += len(copies)
    computation.root_id = replacement.get(computation.root_id, computation.root_id)
    kept = [copy_of(instruction) for instruction in result]
    del computation.instructions[:]
    computation.instructions.extend(kept)
    return count


def _copied(module: Module, call: InstructionProto, fresh: int) -> tuple[list[InstructionProto], int]:
    """The inlined instructions of a call, with ids from `fresh` on, and the id of its result."""
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
    """Whether a call has no meaning besides its callee, which may be copied."""
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
        and not any(i.opcode == "fusion" or i.opcode.startswith(_COMMUNICATING) for i in called.instructions[:])
        and not any(i.opcode == "parameter" and i.control_predecessor_ids for i in called.instructions[:])
    )
