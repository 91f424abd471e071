"""YAML source: one file as plain values, with the location of each.

Read from libyaml's events: they carry positions, take a tenth of the time of a round-trip loader, and
cannot overflow the stack as its recursive composer can. Scalars follow YAML 1.2 (`no` is text, `1e-5` a
number), duplicate keys are errors that name both places, aliases and tags are not part of the language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

from hlo_dispatch.errors import TableError
from hlo_dispatch.pattern.table import SourceLocation

MAX_OPERATIONS = 1 << 20
MAX_NESTING = 20

_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_ILLEGAL = re.compile("[^\\x09\\x0a\\x0d\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

Keys = tuple[str | int, ...]


class Source:
    """The values of one file and their locations."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = str(path)
        self.bytes = self._read()
        self._places: dict[Keys, SourceLocation] = {}
        self._keys: dict[Keys, SourceLocation] = {}
        self._one_line: set[Keys] = set()
        self._blocks: set[Keys] = set()
        self.values = self._mapping()

    def location(self, path: Keys) -> SourceLocation:
        """The location of the value at `path`; of the nearest enclosing one if it was not written."""
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path, SourceLocation(self.file, 1, 1))

    def key_location(self, path: Keys) -> SourceLocation:
        """The location of the key of the value at `path`."""
        return self._keys.get(path) or self.location(path)

    def place_within(self, path: Keys, column: int, line: int = 0) -> SourceLocation:
        """The location of this character of the text at `path`; of its beginning if its lines are not kept."""
        location = self.location(path)
        if path in self._blocks:
            lines = self.bytes.decode("utf-8-sig").splitlines()[location.line :]
            indent = next((len(text) - len(text.lstrip()) for text in lines if text.strip()), 0)
            return SourceLocation(location.file, location.line + 1 + line, indent + column + 1)
        return (
            SourceLocation(location.file, location.line, location.column + column)
            if path in self._one_line
            else location
        )

    def error(self, location: SourceLocation, problem: str, advice: str = "") -> TableError:
        return TableError(location.file, location.line, location.column, problem, advice)

    def _read(self) -> bytes:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise TableError(self.file, 1, 1, "there is no such table", "check the path") from None
        except OSError as error:
            raise TableError(self.file, 1, 1, f"cannot be read: {error.strerror}", "check the path") from None
        if len(data) > MAX_OPERATIONS:
            raise TableError(
                self.file, 1, 1, f"{len(data)} bytes are too many", f"a table has at most {MAX_OPERATIONS}"
            )
        return data

    def _mapping(self) -> dict[str, Any]:
        try:
            text = self.bytes.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.bytes.count(b"\n", 0, error.start) + 1
            raise TableError(self.file, line, 1, "not UTF-8 text", "save the file as UTF-8") from None
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            return self._document(cast("Iterator[Any]", yaml.parse(text, Loader=loader)))  # pyright: ignore[reportUnknownMemberType]
        except yaml.reader.ReaderError:
            line, column, character = _unprintable(text)
            raise TableError(self.file, line, column, f"the character {character!r}", "remove it") from None
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error, text) from None

    def _document(self, events: Iterator[Any]) -> dict[str, Any]:
        next(events)
        if isinstance(next(events), yaml.StreamEndEvent):
            raise TableError(self.file, 1, 1, "the file is empty", "a table begins with version: 1")
        values: Any = self._value(next(events), events, ())
        if not isinstance(values, dict):
            raise self.error(self.location(()), "the table is not a mapping", "it begins with version: 1")
        next(events)
        rest = next(events)
        if not isinstance(rest, yaml.StreamEndEvent):
            raise self.error(self._at(rest), "a second document", "one file is one table: remove the line ---")
        return cast("dict[str, Any]", values)

    def _syntax(self, error: yaml.MarkedYAMLError, text: str) -> TableError:
        mark = error.problem_mark or error.context_mark
        row, column = (mark.line, mark.column) if mark else (0, 0)
        problem, advice = error.problem or "not YAML", ""
        lines = text.splitlines()
        line = lines[row] if row < len(lines) else ""
        if "\t" in line[: len(line) - len(line.lstrip())] or "'\\t'" in problem:
            problem, advice = "a tab in the indentation", "YAML is indented with spaces"
        elif "mapping values are not allowed" in problem:
            advice = "put text that contains ': ' in quotes, and begin a nested mapping on its own line"
        return TableError(self.file, row + 1, column + 1, f"not YAML: {problem}", advice)

    def _at(self, event: Any) -> SourceLocation:
        return SourceLocation(self.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _value(self, event: Any, events: Iterator[Any], path: Keys) -> Any:
        location = self._places[path] = self._at(event)
        if isinstance(event, yaml.AliasEvent):
            raise self.error(location, "an alias", "write the value out: aliases are not part of the language")
        if event.tag is not None:
            raise self.error(location, f"the tag {event.tag}", "remove it: tags are not part of the language")
        if len(path) > MAX_NESTING:
            raise self.error(location, "nested too deeply", f"{MAX_NESTING} levels are allowed")
        if isinstance(event, yaml.MappingStartEvent):
            return self._members(events, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._items(events, path)
        if event.style == "|":
            self._blocks.add(path)
        elif event.start_mark.line == event.end_mark.line:
            self._one_line.add(path)
            if event.style in ("'", '"'):
                self._places[path] = SourceLocation(location.file, location.line, location.column + 1)
        return event.value if event.style else scalar(event.value)  # plain has no style

    def _items(self, events: Iterator[Any], path: Keys) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            result.append(self._value(event, events, (*path, len(result))))
        return result

    def _members(self, events: Iterator[Any], path: Keys) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            location = self._at(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise self.error(location, "a key that is not text", "keys are names")
            key = event.value
            if key in result:
                first = self._keys[(*path, key)]
                raise self.error(location, f"{key!r} is written twice", f"the first is at {first}")
            self._keys[(*path, key)] = location
            result[key] = self._value(next(events), events, (*path, key))
        return result


def scalar(text: str) -> Any:
    """A plain scalar by YAML 1.2's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) < 20 else float(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _unprintable(text: str) -> tuple[int, int, str]:
    """The location of the first character that YAML does not allow in a file."""
    found = next((match for match in _ILLEGAL.finditer(text)), None)
    start = found.start() if found else 0
    before = text[:start]
    return before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1, found.group() if found else ""
