"""Merged buffers: copies in place of what XLA computed twice, where the buffers must stay two.

XLA fuses a value into several fusions, each of which writes it to a buffer of its own, in another shape perhaps. The
flat graph has it once, and so has the rewritten computation: one buffer where XLA's copy insertion had seen two. As
two elements of a result, or of a loop's state, it would be changed by one's writer and read by the other's reader.
Readers alone are ordered before writers (write_after_read_hazards.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, ComputationProto, InstructionProto

_TUPLE = ELEMENT_TYPE_NUMBERS["tuple"]

_Buffer = tuple[int, tuple[int, ...]]
"""(id of the instruction that writes it, index into its result…)."""
_Use = tuple[int | None, int]
"""(id of an instruction, operand number); without an id: the computation's result."""


def separate_buffers(editor: Editor, updates: Mapping[int, Collection[int]]) -> None:
    """Add copies to a draft, so that no two buffers that parts of tuples or in-place updates had are one.

    Args:
        updates: id of an in-place update, XLA's or created → numbers of the operands that it may overwrite.
    """
    instructions = editor.instructions
    uses: dict[_Buffer, list[_Use]] = {}
    for identifier, numbers in _keepers(editor, updates):
        operands = instructions[identifier].operand_ids[:]
        for number in numbers:
            if instructions[operands[number]].shape.element_type != _TUPLE:
                uses.setdefault(_buffer(operands[number], instructions), []).append((identifier, number))
    if editor.root.shape.element_type != _TUPLE:
        uses.setdefault(_buffer(editor.root_id, instructions), []).append((None, 0))
    shared = {buffer: places for buffer, places in uses.items() if len(places) > 1}
    if not shared:
        return
    originals = _Originals(editor.computation)
    for buffer, places in shared.items():
        before: dict[_Buffer, list[_Use]] = {}
        seen: set[int | None] = set()
        for use in places:
            old = originals.buffer_of(use, editor, buffer, is_first=use[0] not in seen)
            before.setdefault(old, []).append(use)
            seen.add(use[0])
        stays = buffer if buffer in before else next(iter(before))
        for old, merged in before.items():
            if old != stays:
                _copy(editor, merged)


def _keepers(editor: Editor, updates: Mapping[int, Collection[int]]) -> Iterable[tuple[int, Collection[int]]]:
    """Instructions that keep buffers of operands or overwrite them, and the numbers of these operands."""
    for identifier, proto in list(editor.instructions.items()):
        if proto.opcode == "tuple":
            yield identifier, range(len(proto.operand_ids))
        elif identifier in updates:
            yield identifier, updates[identifier]


class _Originals:
    """The buffers of a computation as XLA's copy insertion saw it."""

    def __init__(self, computation: ComputationProto) -> None:
        self._root_id = computation.root_id
        self._instructions = {instruction.id: instruction for instruction in computation.instructions[:]}
        tuples = [proto for proto in self._instructions.values() if proto.opcode == "tuple"]
        self._in_tuples = {_buffer(i, self._instructions) for proto in tuples for i in proto.operand_ids[:]}

    def buffer_of(self, use: _Use, editor: Editor, buffer: _Buffer, *, is_first: bool) -> _Buffer:
        """The buffer that stood where a buffer is used now.

        Args:
            is_first: no other operand before it of the same instruction has the buffer.
        """
        identifier, number = use
        if identifier is None:
            return _buffer(self._root_id, self._instructions)
        if identifier in self._instructions:
            return _buffer(self._instructions[identifier].operand_ids[number], self._instructions)
        if editor.instructions[identifier].opcode == "tuple" and buffer in self._in_tuples and is_first:
            return buffer  # in place of a tuple that had it, too
        # What a created update overwrites was a value inside of its fusion; another value was in no tuple.
        return identifier, (number,)


def _buffer(identifier: int, instructions: Mapping[int, InstructionProto]) -> _Buffer:
    """The buffer of a value; unlike `BufferUses.definer` it tells the results of one instruction apart."""
    path: tuple[int, ...] = ()
    while True:
        proto = instructions[identifier]
        if proto.opcode == "get-tuple-element":
            path = (proto.tuple_index, *path)
            identifier = proto.operand_ids[0]
        elif proto.opcode == "tuple" and path:
            identifier, path = proto.operand_ids[path[0]], path[1:]
        elif proto.opcode == "bitcast":
            identifier = proto.operand_ids[0]
        else:
            return identifier, path


def _copy(editor: Editor, uses: Iterable[_Use]) -> None:
    copies: dict[int, int] = {}
    for identifier, number in uses:
        value = editor.root_id if identifier is None else editor.instructions[identifier].operand_ids[number]
        if value not in copies:
            source = editor.instructions[value]
            copies[value] = editor.after(value, source).make("copy", source.shape, value, stem="buffer_copy").id
        if identifier is None:
            editor.root_id = copies[value]
        else:
            editor.set_operand(identifier, number, copies[value])
