"""Constraint arguments: parsers that check an argument and return its value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hlo_dispatch.ir.schema import ELEMENT_TYPE_NUMBERS

ANY = "any"
BUT_LAST = "but_last"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LABELS = re.compile(r"[bf0-9]+_[io0-9]+->[bf0-9]+")


class InvalidArgument(ValueError):
    """An argument that its constraint does not take; the message says what would be right."""


def flag(written: Any) -> bool:
    if written is not True:
        raise InvalidArgument("write true, or leave it out")
    return True


def whole_number(written: Any) -> int:
    if type(written) is not int or written < 0:
        raise InvalidArgument("it should be a whole number")
    return written


def name(written: Any) -> str:
    if not isinstance(written, str) or not _NAME.fullmatch(written):
        raise InvalidArgument("it should be the name of a value of this pattern")
    return written


def number_or_range(count: int) -> Callable[[Any], Any]:
    """One number, or a tuple of `count` in ascending order."""

    def read(written: Any) -> Any:
        values = _items(written) if count > 1 else [written]
        if len(values) != count or not all(type(value) in (int, float) and value == value for value in values):
            raise InvalidArgument("it should be a number" if count == 1 else "it should be two numbers: [low, high]")
        if values != sorted(values):
            raise InvalidArgument("the smaller number comes first")
        return float(values[0]) if count == 1 else tuple(map(float, values))

    return read


def dtypes(written: Any) -> tuple[str, ...]:
    """One element type or several."""
    kinds = _items(written) if isinstance(written, list) else [written]
    known = [kind for kind in ELEMENT_TYPE_NUMBERS if kind not in ("tuple", "opaque", "token")]
    if not kinds or not all(kind in known for kind in kinds):
        raise InvalidArgument(f"element types are: {', '.join(known)}")
    return tuple(kinds)


def dimensions(written: Any) -> tuple[int | None, ...]:
    """A size for each dimension; `any` where it does not matter."""
    sizes = _items(written)
    if not isinstance(written, list) or not all(size == ANY or (type(size) is int and size >= 0) for size in sizes):
        raise InvalidArgument("it should be a list of sizes such as [any, 64]")
    return tuple(None if size == ANY else size for size in sizes)


def dimension_list(written: Any) -> tuple[int, ...] | None:
    """Dimension numbers, from the back where negative; `last`; `any` (None)."""
    if written == ANY:
        return None
    if written == "last":
        return (-1,)
    numbers = _items(written)
    if not isinstance(written, list) or not all(type(number) is int for number in numbers):
        raise InvalidArgument("it should be last, any, or a list of dimension numbers such as [0, 2]")
    if len(set(numbers)) != len(numbers):
        raise InvalidArgument("a dimension is named twice")
    return tuple(numbers)


def along(written: Any) -> tuple[int, ...] | str | None:
    """A list of dimensions, or `but_last` (BUT_LAST), which holds for any rank."""
    return BUT_LAST if written == BUT_LAST else dimension_list(written)


def labels(written: Any) -> str | None:
    """Dimension labels as HLO text writes them, or any (None)."""
    if written == ANY:
        return None
    if not isinstance(written, str) or not _LABELS.fullmatch(written):
        raise InvalidArgument("it should be labels such as b01f_01io->b01f, or any")
    return written


def choice(*allowed: str) -> Callable[[Any], str]:
    """One of the words."""

    def read(written: Any) -> str:
        if written not in allowed:
            raise InvalidArgument(f"it should be {' or '.join(allowed)}")
        return written

    return read


def _items(written: Any) -> list[Any]:
    return list(written) if isinstance(written, list) else []  # pyright: ignore[reportUnknownArgumentType]
