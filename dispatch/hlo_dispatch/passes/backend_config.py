"""A kernel call's attributes as the text XLA parses into typed FFI attributes."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, cast

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|array<i64[^>]*>|[-+.\w]+ : (?:i64|f32)|\w+|[{}=]|[ ,]+',
)
_ESCAPED = re.compile(r"\\(.)")


def to_text(attributes: Mapping[str, Any]) -> str:
    """`{name = 1 : i64, strides = array<i64: 1, 2>, kind = "relu", alpha = 0.5 : f32, nested = {…}}`.

    Python ints become i64, floats f32, sequences of ints array<i64>, strings strings, mappings dictionaries.

    Raises:
        TypeError: a value of any other type.
    """
    return "{" + ", ".join(f"{name} = {_value(value)}" for name, value in attributes.items()) + "}"


def _value(value: Any) -> str:
    # Exact types first: a module has thousands of these.
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is int:
        return f"{value} : i64"
    if kind is list or kind is tuple:
        return f"array<i64: {str(value)[1:-1].rstrip(',')}>" if value else "array<i64>"
    if kind is str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if kind is dict:
        return to_text(value)
    if kind is float:
        return _float(value)
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return to_text(cast("Mapping[str, Any]", value))
    if isinstance(value, float):
        return _float(value)
    raise TypeError(f"a kernel attribute cannot be {kind.__name__}")


def _float(value: float) -> str:
    # MLIR spells the non-finite ones as the bits of the float.
    if math.isinf(value):
        return ("0x7F800000" if value > 0 else "0xFF800000") + " : f32"
    if math.isnan(value):
        return "0x7FC00000 : f32"
    text = repr(value)
    if "." not in text:
        mantissa, _, exponent = text.partition("e")
        text = f"{mantissa}.0" + (f"e{exponent}" if exponent else "")
    return f"{text} : f32"


def from_text(text: str) -> dict[str, Any]:
    """The attributes that `to_text` wrote.

    Raises:
        ValueError: it is no text of that form.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text.strip():
        raise ValueError(f"not a kernel call's attributes: {text[:80]!r}")
    # The other tokens are blanks and commas.
    reader = iter([token for token in tokens if token.strip(" ,")])
    if next(reader, None) != "{":
        raise ValueError(f"not a kernel call's attributes: {text[:80]!r}")
    try:
        return _dictionary(reader)
    except StopIteration:
        raise ValueError(f"a kernel call's attributes end early: {text[-80:]!r}") from None


def _dictionary(reader: Iterator[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while (name := next(reader)) != "}":
        if next(reader) != "=":
            raise ValueError(f"no value after the attribute {name}")
        found[name] = _read(next(reader), reader)
    return found


def _read(token: str, reader: Iterator[str]) -> Any:
    if token == "{":
        return _dictionary(reader)
    if token in ("true", "false"):
        return token == "true"
    if token.startswith('"'):
        return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], token[1:-1])
    if token.startswith("array<i64"):
        return [int(number) for number in token[len("array<i64") : -1].lstrip(":").split(",") if number.strip()]
    value, _, kind = token.partition(" : ")
    if kind == "i64":
        return int(value)
    if value.startswith("0x"):
        return struct.unpack(">f", bytes.fromhex(value[2:]))[0]
    return float(value)
