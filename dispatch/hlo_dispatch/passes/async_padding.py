"""Async padding: a thousand negations that keep a program of kernel calls alone asynchronous.

XLA's CPU client dispatches a program to its own thread, so that the call returns at once, unless HloCostAnalysis counts
fewer than 1000 operations in it (xla/pjrt/cpu/cpu_client.cc, `cheap_computation_`): then the program runs on the
caller's thread. A custom-call counts as no operation. A long program of kernel calls alone would therefore block its
caller, and allocate its results on another thread than stock's program does.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto
from hlo_dispatch.ir.shape import row_major, shape_of
from hlo_dispatch.match.match import Match

CHEAP_OPERATIONS = 1000
"""Operation count below which XLA's client runs a program on the caller's thread."""
MIN_MULTIPLY_ADDS = 10_000_000
"""Multiply-adds of some 50 µs; shorter programs are faster on the caller's thread."""
COUNTED_OPCODES = frozenset(
    "abs add and ceil clamp compare convert convolution divide dot floor maximum minimum multiply negate or reduce "
    "select sign subtract".split()
)
"""Opcodes that count at least one operation per result element; transcendental functions count as none."""
NAME = "async_padding"
"""What async padding is called, or begins with."""
_PADDING = row_major("f32", (1024,))


def insert_async_padding(module: Module, matches: Sequence[Match]) -> set[int]:
    """Add async padding to a rewritten module that needs it.

    Args:
        matches: the dispatched matches.

    Returns:
        ids of the computations that are new or were changed.
    """
    if sum(match.work.multiply_adds for match in matches) < MIN_MULTIPLY_ADDS or _is_counted_as_costly(module):
        return set()
    if not any(map(_is_kernel_call, module.entry.instructions)):
        return set()
    computation = _padding_computation(module)
    entry = module.entry
    identifier = max(instruction.id for instruction in entry.instructions) + 1
    fusion = InstructionProto(opcode="fusion", id=identifier, name=module.fresh_name(NAME))
    fusion.shape.CopyFrom(_PADDING.to_proto())
    fusion.fusion_kind = "kLoop"
    fusion.called_computation_ids.append(computation)
    # Without a user or a control successor it would be removed as dead code.
    next(filter(_is_kernel_call, entry.instructions)).control_predecessor_ids.append(identifier)
    instructions = [fusion, *entry.instructions]
    del entry.instructions[:]
    entry.instructions.extend(instructions)
    return {entry.id, computation}


def _is_kernel_call(instruction: InstructionProto) -> bool:
    return instruction.custom_call_target.startswith("hlo_dispatch.")


def _is_counted_as_costly(module: Module) -> bool:
    counted = 0
    for computation in module.proto.computations[:]:
        instructions = computation.instructions[:]
        shapes = {instruction.id: instruction.shape for instruction in instructions}
        for instruction in instructions:
            if instruction.opcode in COUNTED_OPCODES:
                # A reduction's work is its operand's size.
                of = shapes[instruction.operand_ids[0]] if instruction.opcode == "reduce" else instruction.shape
                shape = shape_of(of)
                counted += shape.elements if shape.is_array else 0
                if counted >= CHEAP_OPERATIONS:
                    return True
    return False


def _padding_computation(module: Module) -> int:
    """Id of a new fused computation, first in the module, as callees precede callers."""
    computation = ComputationProto(id=module.fresh_computation_id(), name=module.fresh_name("async_padding"))
    computation.execution_thread = module.entry.execution_thread
    for number, opcode in enumerate(("iota", "negate")):
        instruction = computation.instructions.add(opcode=opcode, name=module.fresh_name(f"async_padding_{opcode}"))
        instruction.id = (computation.id << 32) + number
        instruction.shape.CopyFrom(_PADDING.to_proto())
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
