"""Stop before code generation: a module that ends a compilation with an error, once its optimized HLO was captured."""

from __future__ import annotations

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto

UNREGISTERED_TARGET = "hlo_dispatch_nowhere"
"""A custom-call target without a handler; XLA's error names it."""
_TYPED = 4
"""XLA's number for calls of its typed FFI."""


def stopping_before_codegen(module: Module) -> Module:
    """A module of the same signature that XLA cannot compile."""
    program = module.copy()
    entry = program.entry
    parameters = [instruction for instruction in entry.instructions[:] if instruction.opcode == "parameter"]
    # XLA allocates lists as long as the largest id, so this is the next one.
    number = 1 + max(instruction.id for instruction in entry.instructions[:])
    result = InstructionProto(
        name=program.fresh_name("nowhere"),
        opcode="custom-call",
        custom_call_target=UNREGISTERED_TARGET,
        custom_call_api_version=_TYPED,
        id=number,
    )
    result.shape.CopyFrom(entry.program_shape.result)
    del entry.instructions[:]
    entry.instructions.extend([*parameters, result])
    entry.root_id = number
    del program.proto.computations[:]
    program.proto.computations.append(entry)
    return Module(program.proto)
