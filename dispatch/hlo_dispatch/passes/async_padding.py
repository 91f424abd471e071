"""Keeping a program asynchronous that consists of kernel calls only.

XLA's CPU client hands a program to a thread of its own, so that calling it returns at once, unless HloCostAnalysis
counts fewer than 1000 operations in it (xla/pjrt/cpu/cpu_client.cc, `cheap_computation_`): then it runs on the
caller's thread. Of a custom-call it counts none, so where kernels take everything, a long program would suddenly
keep its caller waiting, and allocate its results on another thread than stock's. Such a program gets a thousand
negations in front of its first call.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import row_major, shape_of
from hlo_dispatch.match.protocol import CallableMatch

CHEAP = 1000
"""Operations that XLA's client takes for less work than a change of threads."""
LEAST_WORK = 10_000_000
"""Multiply-adds that last some 50 µs; shorter programs are better off on the caller's thread."""
COUNTED = frozenset(
    "abs add and ceil clamp compare convert convolution divide dot floor maximum minimum multiply negate or reduce "
    "select sign subtract".split()
)
"""Opcodes of which each element of the result is an operation at least; transcendental functions count as none."""
NAME = "keeps_asynchronous"
"""What the ballast is called, or begins with."""
_BALLAST = row_major("f32", (1024,))


def keep_asynchronous(module: Module, matches: Sequence[CallableMatch]) -> set[int]:
    """Add the ballast to a rewritten module that needs it.

    Args:
        matches: what was dispatched.

    Returns:
        ids of the computations that are new or were changed.
    """
    if sum(match.work.multiply_adds for match in matches) < LEAST_WORK or _is_counted_costly(module):
        return set()
    if not any(map(_is_ours, module.entry.instructions)):
        return set()
    computation = _negations(module)
    entry = module.entry
    identifier = max(instruction.id for instruction in entry.instructions) + 1
    fusion = InstructionProto(opcode="fusion", id=identifier, name=module.fresh_name(NAME))
    fusion.shape.CopyFrom(_BALLAST.to_proto())
    fusion.fusion_kind = "kLoop"
    fusion.called_computation_ids.append(computation)
    # What nothing waits for is dropped as dead.
    next(filter(_is_ours, entry.instructions)).control_predecessor_ids.append(identifier)
    instructions = [fusion, *entry.instructions]
    del entry.instructions[:]
    entry.instructions.extend(instructions)
    return {entry.id, computation}


def _is_ours(instruction: InstructionProto) -> bool:
    return instruction.custom_call_target.startswith("hlo_dispatch.")


def _is_counted_costly(module: Module) -> bool:
    counted = 0
    for computation in module.proto.computations[:]:
        instructions = computation.instructions[:]
        shapes = {instruction.id: instruction.shape for instruction in instructions}
        for instruction in instructions:
            if instruction.opcode in COUNTED:
                # A reduction's work is its operand's size.
                of = shapes[instruction.operand_ids[0]] if instruction.opcode == "reduce" else instruction.shape
                shape = shape_of(of)
                counted += shape.elements if shape.is_array else 0
                if counted >= CHEAP:
                    return True
    return False


def _negations(module: Module) -> int:
    """Id of a new fused computation that stands before all others, as callees do."""
    computation = ComputationProto(id=module.fresh_computation_id(), name=module.fresh_name("ballast"))
    computation.execution_thread = module.entry.execution_thread
    for number, opcode in enumerate(("iota", "negate")):
        instruction = computation.instructions.add(opcode=opcode, name=module.fresh_name(f"ballast_{opcode}"))
        instruction.id = (computation.id << 32) + number
        instruction.shape.CopyFrom(_BALLAST.to_proto())
        if opcode == "iota":
            instruction.dimensions.append(0)
        else:
            instruction.operand_ids.append(computation.root_id)
        computation.root_id = instruction.id
    others = list(module.proto.computations)
    del module.proto.computations[:]
    module.proto.computations.extend([computation, *others])
    module.computations = {c.id: c for c in module.proto.computations}
    return computation.id
