"""Digests of instructions and computations: structural hashes that are equal for equal work in any module and process.

Names, ids and source locations do not change XLA's code, so the digest ignores them. It covers shapes with layouts,
small constants, fusion boundaries, and how a fusion is split over threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import PLAIN
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of

LARGEST_CONSTANT = 4096
"""Bytes. Smaller constants are hashed, since a match may depend on their value; larger ones are inputs, as weights."""

# Fields that identify an instruction or its place; operands are hashed by position.
_PLACE = ("name", "id", "operand_ids", "metadata", "control_predecessor_ids", "called_computation_ids")


class Digests:
    """Digests of the instructions and computations of one module, cached."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._computations: dict[int, bytes] = {}

    def of_instruction(self, instruction: InstructionProto) -> bytes:
        """Digest input of an instruction, without its operands."""
        if instruction.opcode in PLAIN:
            # The most frequent opcodes, which have nothing but a shape.
            return instruction.opcode.encode() + instruction.shape.SerializeToString()
        if instruction.opcode == "constant" and shape_of(instruction.shape).bytes > LARGEST_CONSTANT:
            # Weights: the code does not depend on their values.
            return b"constant" + instruction.shape.SerializeToString()
        copy = type(instruction)()
        copy.CopyFrom(instruction)
        for field in _PLACE:
            copy.ClearField(field)
        called = b"".join(self.of_computation(number) for number in instruction.called_computation_ids[:])
        return copy.SerializeToString(deterministic=True) + called

    def of_computation(self, identifier: int) -> bytes:
        """Digest of a computation."""
        known = self._computations.get(identifier)
        if known is None:
            computation = self._module.computations[identifier]
            hasher = hashlib.sha256()
            position: dict[int, int] = {}
            for instruction in computation.instructions[:]:
                position[instruction.id] = len(position)
                hasher.update(self.of_instruction(instruction))
                hasher.update(operands(instruction, position))
            hasher.update(b"root %d" % position[computation.root_id])
            known = self._computations[identifier] = hasher.digest()
        return known


def operands(instruction: InstructionProto, position: Mapping[int, int]) -> bytes:
    """Digest input of an instruction's operands, by their position."""
    return str([position[operand] for operand in instruction.operand_ids[:]]).encode()
