"""The canonical form of a part of a module: equal work has an equal digest, in any module and any process.

Names, ids, where an instruction comes from in the user's program: none of that changes what XLA makes of an
instruction, so none of it is in the digest. Shapes with their layouts, constants, what is fused with what and
how a fusion is split over threads: all of that is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import PLAIN
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of

LARGEST_CONSTANT = 4096
"""Bytes. A smaller constant is part of what is computed, since what is matched may depend on it; a larger one is an
input, as weights are."""

# Fields that only say where an instruction is; the operands are told by position.
_PLACE = ("name", "id", "operand_ids", "metadata", "control_predecessor_ids", "called_computation_ids")


class Digests:
    """Digests of the instructions and computations of one module, each made once."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._computations: dict[int, bytes] = {}

    def of_instruction(self, instruction: InstructionProto) -> bytes:
        """What the instruction does, without its operands."""
        if instruction.opcode in PLAIN:
            # Most instructions of a module are these, and a shape is all they have.
            return instruction.opcode.encode() + instruction.shape.SerializeToString()
        if instruction.opcode == "constant" and shape_of(instruction.shape).bytes > LARGEST_CONSTANT:
            # Weights: what is computed with them does not depend on their values.
            return b"constant" + instruction.shape.SerializeToString()
        copy = type(instruction)()
        copy.CopyFrom(instruction)
        for field in _PLACE:
            copy.ClearField(field)
        called = b"".join(self.of_computation(number) for number in instruction.called_computation_ids)
        return copy.SerializeToString(deterministic=True) + called

    def of_computation(self, identifier: int) -> bytes:
        """What the computation computes."""
        known = self._computations.get(identifier)
        if known is None:
            computation = self._module.computations[identifier]
            hasher = hashlib.sha256()
            position: dict[int, int] = {}
            for instruction in computation.instructions:
                position[instruction.id] = len(position)
                hasher.update(self.of_instruction(instruction))
                hasher.update(operands(instruction, position))
            hasher.update(b"root %d" % position[computation.root_id])
            known = self._computations[identifier] = hasher.digest()
        return known


def operands(instruction: InstructionProto, position: Mapping[int, int]) -> bytes:
    """The instruction's operands by their position."""
    return str([position[operand] for operand in instruction.operand_ids]).encode()
