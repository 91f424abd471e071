"""Attributes of kernel calls: a mapping, and the text that XLA parses into typed FFI attributes.

The only place that parses or prints this text.
"""

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


class Attributes(Mapping[str, Any]):
    """A kernel call's attributes: parsed from their text, or printed to it, when first needed and once."""

    __slots__ = ("_repr", "_scratch", "_text", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None, text: str = "") -> None:
        """From a mapping, from a text that `from_text` can parse, or from both where they agree."""
        self._values, self._text, self._repr = values, text, ""
        self._scratch: tuple[int, Attributes] | None = None
        """The last scratch size that was asked for, and the attributes with it."""

    @property
    def mapping(self) -> Mapping[str, Any]:
        """The attributes, parsed."""
        if self._values is None:
            self._values = from_text(self._text)
        return self._values

    @property
    def text(self) -> str:
        if not self._text and self._values is not None:
            self._text = to_text(self._values)
        return self._text

    def with_scratch(self, size: int) -> Attributes:
        """The same attributes, whose scratch size was 0, with another one."""
        if self._scratch is None or self._scratch[0] != size:
            text = self.text.replace("scratch = 0 : i64", f"scratch = {size} : i64", 1)
            self._scratch = size, Attributes({**self.mapping, "scratch": size}, text)
        return self._scratch[1]

    def after(self, first: Mapping[str, Any]) -> Attributes:
        """The attributes in `first`, and then these, which are not parsed for that."""
        values = None if self._values is None else {**first, **self._values}
        return Attributes(values, f"{to_text(first)[:-1]}, {self.text[1:]}")

    def __repr__(self) -> str:
        """That of a dictionary, which keys of stored measurements contain."""
        if not self._repr:
            self._repr = repr(dict(self.mapping))
        return self._repr

    def __getitem__(self, name: str) -> Any:
        return self.mapping[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.mapping)

    def __len__(self) -> int:
        return len(self.mapping)


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
    if isinstance(value, Attributes):
        return value.text
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


def has_attribute(text: str, name: str) -> bool:
    """Whether attributes have one of this name, or contain a dictionary that has one; they are not parsed."""
    return f" {name} = " in text or f"{{{name} = " in text


def split_first(text: str, name: str) -> tuple[dict[str, Any] | None, str]:
    """The dictionary that is the first of several attributes, if it has this name, and the text of the others."""
    begin = f"{{{name} = {{"
    if not text.startswith(begin):
        return None, text
    end = text.index("}", len(begin)) + 1
    return from_text(text[len(begin) - 1 : end]), "{" + text[end:].removeprefix(", ")


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
