"""Inlining of plain calls, as XLA does before its optimizations.

A module that was dumped before them has activations, layers and other nested jits behind a `call`, which the matcher
does not enter. Calls in optimized modules have a meaning (a small call, a parallel task) and stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto

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


def inline_calls(module: Module) -> set[int]:
    """Inline plain calls; returns ids of the computations that changed."""
    if module.proto.schedule:
        return set()  # compiled already: its calls have a meaning
    drafts: dict[int, Editor] = {}
    copies_left = _MAX_COPIES
    # Callees precede callers: a copied draft contains no plain calls any more.
    for computation in module.proto.computations[:]:
        copies_left -= _inline_into(module, computation, drafts, copies_left)
    return commit(module, drafts.values())


def _inline_into(module: Module, caller: ComputationProto, drafts: dict[int, Editor], copies_left: int) -> int:
    """Draft the caller without its plain calls; returns how many instructions were copied."""
    calls = [i for i in caller.instructions[:] if i.opcode == "call" and _is_plain(module, caller, i)]
    contents = {call.id: _contents(module, call.called_computation_ids[0], drafts) for call in calls}
    count = sum(len(instructions) for instructions, _ in contents.values())
    if not calls or count > copies_left:
        return 0
    editor = drafts[caller.id] = Editor(module, caller)
    for identifier, (instructions, root) in contents.items():
        operands, ids = editor.instructions[identifier].operand_ids[:], dict[int, int]()
        builder = editor.after(identifier)
        for instruction in instructions:
            if instruction.opcode == "parameter":
                ids[instruction.id] = operands[instruction.parameter_number]
                continue
            copied_operands = [ids[operand] for operand in instruction.operand_ids[:]]
            predecessors = [ids[other] for other in instruction.control_predecessor_ids[:]]
            ids[instruction.id] = builder.clone(instruction, copied_operands, predecessors).id
        editor.replace_all_uses_with(identifier, ids[root])
        editor.erase(identifier)
    return count


def _contents(module: Module, identifier: int, drafts: Mapping[int, Editor]) -> tuple[list[InstructionProto], int]:
    """The instructions of a computation, operands before users, and the id of its root."""
    if (draft := drafts.get(identifier)) is not None:
        return draft.ordered(), draft.root_id
    computation = module.computations[identifier]
    return computation.instructions[:], computation.root_id


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
