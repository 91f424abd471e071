"""Submessages: the bytes of a serialized message's parts, neither parsed nor serialized again."""

from __future__ import annotations

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types of protocol buffers."""


def submessages(message: bytes, field: int) -> list[bytes]:
    """The parts of a well-formed message that are this field, in order, up to a field of another wire type."""
    found: list[bytes] = []
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _BYTES:
            size, position = _varint(message, position)
            if tag >> 3 == field:
                found.append(message[position : position + size])
            position += size
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            position += 8 if kind == _EIGHT_BYTES else 4
        else:
            break
    return found


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number, and the position behind it."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
