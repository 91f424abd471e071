"""Value digests: structural hashes of values by the dataflow that computes them.

Names, ids, the order of instructions and the boundaries of fusions do not matter: two programs in which XLA has fused
the same computation differently have equal digests for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import InstructionProto

# Fields that identify an instruction or its place; operands and called computations are hashed by what they compute.
_PLACE = ("name", "id", "operand_ids", "metadata", "control_predecessor_ids", "called_computation_ids")
_INLINED = frozenset(("call", "fusion"))

Digest = bytes | tuple["Digest", ...]
"""Bytes; for a tuple its elements' digests."""


class ValueDigests:
    """Digests of the values of one module."""

    def __init__(
        self, module: Module, content_of: Callable[[InstructionProto], bytes | None] = lambda instruction: None
    ) -> None:
        """
        Args:
            content_of: what determines an instruction's value besides its operands; None: all that it says.
        """
        self._module, self._content_of = module, content_of
        self._contents: dict[tuple[int, int], bytes] = {}
        """By the ids of computation and instruction."""

    def of_values(
        self, instructions: Sequence[InstructionProto], name_of: Callable[[InstructionProto], bytes]
    ) -> Mapping[int, bytes]:
        """Digest of each of these instructions of the entry, by id.

        Args:
            instructions: in topological order, operands included.
            name_of: what identifies a parameter.
        """
        found: dict[int, Digest] = {}
        entry = self._module.entry.id
        for instruction in instructions:
            if instruction.opcode == "parameter":
                found[instruction.id] = _hashed(b"parameter", name_of(instruction), _shape(instruction))
            else:
                found[instruction.id] = self._of(entry, instruction, [found[o] for o in instruction.operand_ids[:]])
        return {identifier: _joined(digest) for identifier, digest in found.items()}

    def _of(self, computation: int, instruction: InstructionProto, operands: list[Digest]) -> Digest:
        if instruction.opcode == "tuple":
            return tuple(operands)
        if instruction.opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            return operands[0][instruction.tuple_index]
        if instruction.opcode in _INLINED:
            return self._of_computation(instruction.called_computation_ids[0], operands)
        called = (self._of_computation(number, None) for number in instruction.called_computation_ids[:])
        return _hashed(self._content(computation, instruction), *map(_joined, operands), *map(_joined, called))

    def _of_computation(self, identifier: int, operands: list[Digest] | None) -> Digest:
        """Digest of a computation's result; `operands`: of its parameters, None where they are any."""
        computation = self._module.computations[identifier]
        found: dict[int, Digest] = {}
        for instruction in computation.instructions[:]:
            if instruction.opcode != "parameter":
                found[instruction.id] = self._of(
                    identifier, instruction, [found[o] for o in instruction.operand_ids[:]]
                )
            elif operands is not None:
                found[instruction.id] = operands[instruction.parameter_number]
            else:
                found[instruction.id] = _hashed(b"parameter %d" % instruction.parameter_number, _shape(instruction))
        return found[computation.root_id]

    def _content(self, computation: int, instruction: InstructionProto) -> bytes:
        key = computation, instruction.id
        if key not in self._contents:
            found = self._content_of(instruction)
            self._contents[key] = _whole_content(instruction) if found is None else found
        return self._contents[key]


def _whole_content(instruction: InstructionProto) -> bytes:
    copy = InstructionProto()
    copy.CopyFrom(instruction)
    for field in _PLACE:
        copy.ClearField(field)
    return copy.SerializeToString(deterministic=True)


def _shape(instruction: InstructionProto) -> bytes:
    return instruction.shape.SerializeToString()


def _joined(digest: Digest) -> bytes:
    return digest if isinstance(digest, bytes) else _hashed(b"tuple", *map(_joined, digest))


def _hashed(*parts: bytes) -> bytes:
    """Hash of byte strings, with their boundaries."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(b"%d " % len(part))
        hasher.update(part)
    return hasher.digest()
