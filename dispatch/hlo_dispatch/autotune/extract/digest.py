"""Digests of instructions and computations: structural hashes that are equal for equal work in any module and process.

Names, ids and source locations do not change XLA's code, so the digest ignores them. It covers shapes with layouts,
small constants, fusion boundaries, and how a fusion is split over threads. A digest of a program reads every
instruction, so native code does (kernels/python/digests.cc).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import PLAIN
from hlo_dispatch.ir.schema import ComputationProto, InstructionProto, ShapeProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.process.native import native

LARGEST_CONSTANT = 4096
"""Bytes. Smaller constants are hashed, since a match may depend on their value; larger ones are inputs, as weights."""


class InstructionIndex(NamedTuple):
    """What the digests of regions read of a computation's instructions, by their ids."""

    inputs: Mapping[int, bytes]
    """Digest input of each instruction, without its operands."""
    operands: Mapping[int, tuple[int, ...]]
    users: Mapping[int, Sequence[int]]
    """Users of each instruction that has some, in order and each once."""


class Digests:
    """Digests of the instructions and computations of one module, which must not change meanwhile."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def of_instruction(self, instruction: InstructionProto) -> bytes:
        """Digest input of an instruction, without its operands."""
        return native().instruction_digest_input(
            instruction.SerializeToString(), self._of_computations, PLAIN, _is_large
        )

    def index(self, computation: ComputationProto) -> InstructionIndex:
        """The digest inputs, operands and users of all instructions of a computation."""
        read = native().instruction_index(self._module.message(computation), self._of_computations, PLAIN, _is_large)
        return InstructionIndex(*read)

    def of_computation(self, identifier: int) -> bytes:
        """Digest of a computation."""
        return self._of_computations[identifier]

    @cached_property
    def _of_computations(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        digest_input = native().computation_digest_input
        for computation in self._module.proto.computations[:]:  # callees come first
            read = digest_input(self._module.message(computation), found, PLAIN, _is_large)
            found[computation.id] = hashlib.sha256(read).digest()
        return found


@lru_cache(maxsize=4096)
def _is_large(shape: bytes) -> bool:
    """Whether a constant of this serialized shape is weights: the code does not depend on their values."""
    return shape_of(ShapeProto.FromString(shape)).bytes > LARGEST_CONSTANT
