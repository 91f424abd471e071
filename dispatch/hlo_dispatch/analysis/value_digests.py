"""Value digests: structural hashes of values by the dataflow that computes them.

Names, ids, the order of instructions and the boundaries of fusions do not matter: two programs in which XLA has fused
the same computation differently have equal digests for it. Nor do layouts of intermediate values and their dimensions
of one element, which XLA keeps in one program and drops in another: elementwise instructions, broadcasts, copies and
what only adds or drops such dimensions have a canonical digest, without them. Other instructions read their operands
as the shapes say, and so does the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.opcode import ELEMENTWISE, SHIFTS
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import Shape, shape_of

# Fields that identify an instruction or its place; operands and called computations are hashed by what they compute.
_PLACE = ("name", "id", "operand_ids", "metadata", "control_predecessor_ids", "called_computation_ids")
_INLINED = frozenset(("call", "fusion"))
_ELEMENTWISE = ELEMENTWISE | SHIFTS
"""Opcodes whose results have their operands' dimensions."""
_UNCHANGED = frozenset(("bitcast", "copy", "reshape"))
"""Opcodes whose results are their operands where at most layout and dimensions of one element change."""


@dataclass(frozen=True)
class _ArrayDigest:
    """Digest of an array."""

    canonical: bytes
    """Without its layout and its dimensions of one element."""
    shape: Shape


Digest = _ArrayDigest | tuple["Digest", ...]
"""Of an array, or for a tuple its elements' digests."""


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
                found[instruction.id] = _parameter(instruction, b"parameter", name_of(instruction))
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
        shape = shape_of(instruction.shape)
        canonical = self._canonical(computation, instruction, shape, operands)
        if canonical is None:
            called = (self._of_computation(number, None) for number in instruction.called_computation_ids[:])
            canonical = _hashed(self._content(computation, instruction), *map(_joined, operands), *map(_joined, called))
        return _ArrayDigest(canonical, shape)

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
                found[instruction.id] = _parameter(instruction, b"parameter %d" % instruction.parameter_number)
        return found[computation.root_id]

    def _canonical(
        self, computation: int, instruction: InstructionProto, shape: Shape, operands: list[Digest]
    ) -> bytes | None:
        """The canonical digest of an instruction that has one."""
        arrays = [operand for operand in operands if isinstance(operand, _ArrayDigest)]
        if len(arrays) < len(operands) or not shape.is_array:
            return None
        if instruction.opcode in _UNCHANGED:
            return arrays[0].canonical if _is_unchanged(instruction.opcode, arrays[0].shape, shape) else None
        if instruction.opcode == "broadcast":
            axes, places = instruction.dimensions[:], _long_dimensions(shape)
            operand_axes = [places.index(axes[number]) for number in _long_dimensions(arrays[0].shape)]
            if operand_axes == list(range(len(places))):
                return arrays[0].canonical
            content = b"broadcast %s" % repr(operand_axes).encode()
        elif instruction.opcode in _ELEMENTWISE:
            content = self._content(computation, instruction)
        else:
            return None
        return _hashed(content, repr(_canonical_shape(shape)).encode(), *(array.canonical for array in arrays))

    def _content(self, computation: int, instruction: InstructionProto) -> bytes:
        key = computation, instruction.id
        if key not in self._contents:
            found = self._content_of(instruction)
            self._contents[key] = _whole_content(instruction) if found is None else found
        return self._contents[key]


def _parameter(instruction: InstructionProto, *names: bytes) -> _ArrayDigest:
    shape = shape_of(instruction.shape)
    return _ArrayDigest(_hashed(*names, str(shape).encode()), shape)


def _is_unchanged(opcode: str, before: Shape, after: Shape) -> bool:
    """Whether a bitcast, copy or reshape changes at most the layout and dimensions of one element."""
    if _canonical_shape(before) != _canonical_shape(after):
        return False
    return opcode != "bitcast" or _canonical_order(before) == _canonical_order(after)


def _long_dimensions(shape: Shape) -> list[int]:
    """Numbers of the dimensions of more than one element, or of none."""
    return [number for number, size in enumerate(shape.dimensions) if size != 1]


def _canonical_shape(shape: Shape) -> tuple[str, tuple[int, ...]]:
    return shape.element_type, tuple(size for size in shape.dimensions if size != 1)


def _canonical_order(shape: Shape) -> list[int]:
    """The layout without dimensions of one element, which are numbered anew."""
    long = _long_dimensions(shape)
    return [long.index(number) for number in shape.minor_to_major if number in long]


def _whole_content(instruction: InstructionProto) -> bytes:
    copy = InstructionProto()
    copy.CopyFrom(instruction)
    for field in (*_PLACE, "shape") if instruction.opcode in _ELEMENTWISE else _PLACE:
        copy.ClearField(field)
    return copy.SerializeToString(deterministic=True)


def _joined(digest: Digest) -> bytes:
    if isinstance(digest, _ArrayDigest):
        return _hashed(digest.canonical, str(digest.shape).encode())
    return _hashed(b"tuple", *map(_joined, digest))


def _hashed(*parts: bytes) -> bytes:
    """Hash of byte strings, with their boundaries."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(b"%d " % len(part))
        hasher.update(part)
    return hasher.digest()
