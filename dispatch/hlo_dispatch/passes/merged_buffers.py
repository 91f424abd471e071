"""Merged buffers: copies in place of what XLA computed twice, where the buffers must stay two.

XLA fuses a value into several fusions, each of which writes it to a buffer of its own, in another shape perhaps. The
flat graph has it once, and so has the rewritten computation: one buffer where XLA's copy insertion had seen two. As
two elements of a result, or of a loop's state, it would be changed by one's writer and read by the other's reader.
Readers alone are ordered before writers (write_after_read_hazards.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS, InstructionProto

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
    originals = {instruction.id: instruction for instruction in editor.computation.instructions[:]}
    tuples = [proto for proto in originals.values() if proto.opcode == "tuple"]
    in_tuples = {_buffer(element, originals) for proto in tuples for element in proto.operand_ids[:]}
    merged: dict[_Buffer, dict[_Buffer, list[_Use]]] = {}
    for identifier, numbers in _keepers(editor, updates):
        for number, buffer, old in _kept(editor, originals, identifier, numbers, in_tuples):
            merged.setdefault(buffer, {}).setdefault(old, []).append((identifier, number))
    if editor.root.shape.element_type != _TUPLE:
        of_value = merged.setdefault(_buffer(editor.root_id, editor.instructions), {})
        of_value.setdefault(_buffer(editor.computation.root_id, originals), []).append((None, 0))
    for buffer, uses in merged.items():
        if len(uses) > 1:
            stays = buffer if buffer in uses else next(iter(uses))
            for old, places in uses.items():
                if old != stays:
                    _copy(editor, places)


def _keepers(editor: Editor, updates: Mapping[int, Collection[int]]) -> Iterable[tuple[int, Collection[int]]]:
    """Instructions that keep buffers of operands or overwrite them, and the numbers of these operands."""
    for identifier, proto in list(editor.instructions.items()):
        if proto.opcode == "tuple":
            yield identifier, range(len(proto.operand_ids))
        elif identifier in updates:
            yield identifier, updates[identifier]


def _kept(
    editor: Editor,
    originals: Mapping[int, InstructionProto],
    identifier: int,
    numbers: Iterable[int],
    in_tuples: AbstractSet[_Buffer],
) -> Iterator[tuple[int, _Buffer, _Buffer]]:
    """The arrays among a keeper's operands: number, buffer now, and buffer as XLA's copy insertion saw it.

    Args:
        in_tuples: the buffers that were in tuples.
    """
    keeper = editor.instructions[identifier]
    elements: set[_Buffer] = set()
    for number in numbers:
        if editor.instructions[keeper.operand_ids[number]].shape.element_type == _TUPLE:
            continue
        buffer = _buffer(keeper.operand_ids[number], editor.instructions)
        if identifier in originals:
            old = _buffer(originals[identifier].operand_ids[number], originals)
        elif keeper.opcode == "tuple" and buffer in in_tuples and buffer not in elements:
            old = buffer  # in place of a tuple that had it, too
        else:
            # What a created update overwrites was a value inside of its fusion; another value was in no tuple.
            old = (identifier, (number,))
        elements.add(buffer)
        yield number, buffer, old


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
