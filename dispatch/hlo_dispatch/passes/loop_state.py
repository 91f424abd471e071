"""Loop state: the tuple that a loop or a branch takes, whose elements passes add, replace and retype."""

from __future__ import annotations

from hlo_dispatch.ir.builder import InstructionBuilder
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, LiteralProto, ShapeProto
from hlo_dispatch.ir.shape import row_major


def placeholder(builder: InstructionBuilder) -> InstructionProto:
    """A scalar in place of a dead tuple element; copied, because XLA does not let a loop carry a constant."""
    shape = row_major("pred", ())
    constant = builder.constant(shape, LiteralProto(shape=shape.to_proto(), preds=[False]), "placeholder")
    return builder.make("copy", shape, constant.id, stem="placeholder")


def retype(computation: ComputationProto, state: ShapeProto, *, is_result: bool) -> None:
    """Set the new tuple type on a computation's parameter, and on its result."""
    for instruction in computation.instructions[:]:
        if instruction.opcode == "parameter" or (is_result and instruction.id == computation.root_id):
            instruction.shape.CopyFrom(state)
    computation.program_shape.parameters[0].CopyFrom(state)
    if is_result:
        computation.program_shape.result.CopyFrom(state)
