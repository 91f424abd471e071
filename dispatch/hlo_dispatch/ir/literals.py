"""Literals: conversion between a constant's literal and its elements in memory."""

from __future__ import annotations

from hlo_dispatch.ir.schema import LiteralProto
from hlo_dispatch.ir.shape import Shape, row_major

# Fields whose elements have the same encoding in the message as in memory.
_FIELDS = {"pred": "preds", "u8": "u8s", "f16": "f16s", "bf16": "bf16s", "f32": "f32s", "f64": "f64s"}
INTEGER_FIELDS = {"s32": "s32s", "s64": "s64s"}
"""Element type of an index → the field of its literal."""
_LENGTH_DELIMITED = 2
_MORE = 128
_BITS = 7


def literal_of(shape: Shape, memory: bytes | memoryview) -> LiteralProto | None:
    """The literal of an array in memory; None for an unsupported element type."""
    field = _FIELDS.get(shape.element_type)
    if field is None:
        return None
    literal = LiteralProto()
    # Element by element, tens of millions of weights would take seconds.
    tag = LiteralProto.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED
    literal.MergeFromString(b"".join((_varint(tag), _varint(len(memory)), memory)))
    literal.shape.CopyFrom(shape.to_proto())
    return literal


def index_literal(element_type: str, value: int) -> LiteralProto:
    """The literal of an index, a scalar of a signed type."""
    literal = LiteralProto(shape=row_major(element_type, ()).to_proto())
    getattr(literal, INTEGER_FIELDS[element_type]).append(value)
    return literal


def zero_bytes(count: int) -> LiteralProto:
    """The literal of so many bytes (u8) of zero."""
    literal = literal_of(row_major("u8", (count,)), bytes(count))
    assert literal is not None
    return literal


def memory_of(literal: LiteralProto) -> memoryview | None:
    """The elements of a literal in memory, in the layout of its shape; None as for `literal_of`."""
    wire = memoryview(literal.SerializeToString())
    numbers = {LiteralProto.DESCRIPTOR.fields_by_name[field].number for field in _FIELDS.values()}
    position = 0
    while position < len(wire):
        tag, position = _read_varint(wire, position)
        if tag % 8 != _LENGTH_DELIMITED:
            return None
        length, position = _read_varint(wire, position)
        if tag >> 3 in numbers:
            return wire[position : position + length]
        position += length
    return None


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= _MORE:
        found.append(number % _MORE | _MORE)
        number >>= _BITS
    return bytes([*found, number])


def _read_varint(wire: memoryview, position: int) -> tuple[int, int]:
    """(the number at a position, the position after it)."""
    number = shift = 0
    while True:
        byte = wire[position]
        number |= byte % _MORE << shift
        position, shift = position + 1, shift + _BITS
        if byte < _MORE:
            return number, position
