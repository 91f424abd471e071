"""Arrays as literals: what a constant holds."""

from __future__ import annotations

from hlo_dispatch.ir.schema import LiteralProto
from hlo_dispatch.ir.shape import Shape

# Fields whose elements lie in the message as they do in memory.
_FIELDS = {"pred": "preds", "u8": "u8s", "f16": "f16s", "bf16": "bf16s", "f32": "f32s", "f64": "f64s"}
_LENGTH_DELIMITED = 2
_MORE = 128
_BITS = 7


def literal_of(shape: Shape, memory: bytes | memoryview) -> LiteralProto | None:
    """An array, as it lies in memory, as a literal; None for an element type that is none of the usual ones."""
    field = _FIELDS.get(shape.element_type)
    if field is None:
        return None
    literal = LiteralProto()
    # Element by element tens of millions of weights would take seconds.
    tag = LiteralProto.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED
    literal.MergeFromString(b"".join((_varint(tag), _varint(len(memory)), memory)))
    literal.shape.CopyFrom(shape.to_proto())
    return literal


def memory_of(literal: LiteralProto) -> memoryview | None:
    """A literal's elements as they lie in memory, in the layout of its shape; None as for `literal_of`."""
    wire = memoryview(literal.SerializeToString())
    numbers = {LiteralProto.DESCRIPTOR.fields_by_name[field].number for field in _FIELDS.values()}
    place = 0
    while place < len(wire):
        tag, place = _read_varint(wire, place)
        if tag % 8 != _LENGTH_DELIMITED:
            return None
        length, place = _read_varint(wire, place)
        if tag >> 3 in numbers:
            return wire[place : place + length]
        place += length
    return None


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= _MORE:
        found.append(number % _MORE | _MORE)
        number >>= _BITS
    return bytes([*found, number])


def _read_varint(wire: memoryview, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = wire[place]
        number |= byte % _MORE << shift
        place, shift = place + 1, shift + _BITS
        if byte < _MORE:
            return number, place
