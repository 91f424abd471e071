"""Facts: named properties of matched values that a kernel call's attributes may refer to, and literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

I64, F32, STRING, BOOL, I64S = "i64", "f32", "string", "bool", "array<i64>"
TYPES = (I64, F32, STRING, BOOL, I64S)
"""Types of a custom-call's attributes, as the handler reads them."""

_CALL = re.compile(r"([a-z_]+)\(\s*([a-z][a-z0-9_]*)\s*(?:,\s*(-?[0-9]+)\s*)?\)")
_LOOKS_LIKE_A_CALL = re.compile(r"[A-Za-z_]+\s*\(.*\)")


class Bindings(Protocol):
    """Bindings of a pattern's names."""

    def named(self, name: str) -> Any:
        """The node of a value."""
        ...

    def number(self, name: str) -> float:
        """The number of a constant or a parameter."""
        ...


class MissingDimension(ValueError):
    """A fact of a dimension that the value lacks, as in `size(x, 3)` of a matrix: the match is refused."""


@dataclass(frozen=True)
class Fact:
    """One fact of the language."""

    sentence: str
    type: str
    evaluate: Callable[[Any, int | None], Any]
    takes_dimension: bool = False


def _size(node: Any, dimension: int | None) -> int:
    assert dimension is not None
    sizes = node.shape.dimensions
    if not -len(sizes) <= dimension < len(sizes):
        raise MissingDimension(f"{node.shape} has no dimension {dimension}")
    return sizes[dimension]


def _window(field: str) -> Callable[[Any, int | None], list[int]]:
    return lambda node, _: [getattr(dimension, field) for dimension in node.proto.window.dimensions]


FACTS: Mapping[str, Fact] = {
    "bytes": Fact("its size in bytes", I64, lambda node, _: node.shape.bytes),
    "dims": Fact("its dimensions", I64S, lambda node, _: list(node.shape.dimensions)),
    "dtype": Fact("its element type, as HLO writes it", STRING, lambda node, _: node.shape.element_type),
    "elements": Fact("how many elements it has", I64, lambda node, _: node.shape.elements),
    "groups": Fact("a convolution's feature groups", I64, lambda node, _: max(1, node.proto.feature_group_count)),
    "padding_high": Fact("a convolution's padding behind", I64S, _window("padding_high")),
    "padding_low": Fact("a convolution's padding in front", I64S, _window("padding_low")),
    "rank": Fact("how many dimensions it has", I64, lambda node, _: len(node.shape.dimensions)),
    "size": Fact("the size of one dimension, from the back where negative", I64, _size, takes_dimension=True),
    "strides": Fact("its strides in elements", I64S, lambda node, _: list(node.shape.strides)),
    "value": Fact("the number that a constant or a parameter is", F32, lambda node, _: None),
    "window_dilation": Fact("a convolution's dilation", I64S, _window("window_dilation")),
    "window_strides": Fact("a convolution's strides", I64S, _window("stride")),
}
_CONVOLUTION_FACTS = ("groups", "padding_high", "padding_low", "window_dilation", "window_strides")


@dataclass(frozen=True)
class FactQuery:
    """A reference to a fact of one value: `size(x, -1)`."""

    fact: str
    of: str
    dimension: int | None = None

    @property
    def type(self) -> str:
        return FACTS[self.fact].type

    @property
    def is_of_convolution(self) -> bool:
        return self.fact in _CONVOLUTION_FACTS

    def evaluate(self, bound: Bindings) -> Any:
        """The fact's value; raises MissingDimension."""
        if self.fact == "value":
            return float(bound.number(self.of))
        return FACTS[self.fact].evaluate(bound.named(self.of), self.dimension)


Attribute = FactQuery | int | float | str | bool | tuple[int, ...] | Mapping[str, Any]
"""An attribute as a pattern binds it: a fact of a value, or a literal (a mapping contains further ones)."""


def read_attribute(written: Any) -> Attribute:
    """Parses an attribute: a fact where it is written as one, else the literal.

    Raises:
        ValueError: it is neither; the message says why.
    """
    if isinstance(written, str):
        return _text(written)
    if isinstance(written, list):
        items: list[Any] = list(written)  # pyright: ignore[reportUnknownArgumentType]
        if not all(type(item) is int for item in items):
            raise ValueError("a list holds whole numbers")
        return tuple(items)
    if isinstance(written, dict):
        return {str(key): read_attribute(value) for key, value in written.items()}  # pyright: ignore
    if isinstance(written, bool | int | float):
        return written
    raise ValueError("it should be a number, a list of whole numbers, text, or a fact such as dims(x)")


def _text(written: str) -> Attribute:
    call = _CALL.fullmatch(written.strip())
    if call is None:
        if _LOOKS_LIKE_A_CALL.fullmatch(written.strip()):
            raise ValueError("a fact is written fact(name), or size(name, dimension)")
        return written
    word, of, dimension = call.groups()
    fact = FACTS.get(word)
    if fact is None:
        raise ValueError(f"facts are: {', '.join(FACTS)}")
    if fact.takes_dimension is not (dimension is not None):
        raise ValueError(f"write {word}({of}, dimension)" if fact.takes_dimension else f"write {word}({of})")
    return FactQuery(word, of, None if dimension is None else int(dimension))


def fact_queries(attribute: Attribute) -> list[FactQuery]:
    """The facts in an attribute, also inside a mapping."""
    if isinstance(attribute, FactQuery):
        return [attribute]
    if isinstance(attribute, Mapping):
        return [fact for value in attribute.values() for fact in fact_queries(value)]
    return []


def type_of(attribute: Attribute) -> str:
    """The attribute's type in the custom-call."""
    if isinstance(attribute, FactQuery):
        return attribute.type
    if isinstance(attribute, Mapping):
        return "dictionary"
    kinds = {bool: BOOL, int: I64, float: F32, str: STRING, tuple: I64S}
    return kinds[type(attribute)]


def evaluate(attribute: Attribute, bound: Bindings) -> Any:
    """The attribute's value in one match."""
    if isinstance(attribute, FactQuery):
        return attribute.evaluate(bound)
    if isinstance(attribute, Mapping):
        return {key: evaluate(value, bound) for key, value in attribute.items()}
    return list(attribute) if isinstance(attribute, tuple) else attribute


def declared_type(text: str) -> str:
    """The type with which a kernel's attribute description begins: `f32: steepness of the gate`; empty: none."""
    word = text.partition(":")[0].strip()
    return word if word in TYPES else ""
