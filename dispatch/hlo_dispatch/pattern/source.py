"""One YAML file as plain values that remember where each was written.

Read through libyaml's node graph: nodes carry positions and it takes a tenth of the time of a round-trip
loader. Scalars follow YAML 1.2 (`no` is text, `1e-5` a number), duplicate keys are errors that name both
places, and aliases and tags are not part of the language.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ..errors import TableError
from .table import Place

LARGEST = 1 << 20
DEEPEST = 20

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
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge", "value")
)

Keys = tuple[str | int, ...]


class Source:
    """The values of one file and their places."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = str(path)
        self.bytes = self._read()
        self._places: dict[Keys, Place] = {}
        self._keys: dict[Keys, Place] = {}
        self._one_line: set[Keys] = set()
        self.values = self._mapping()

    def place(self, path: Keys) -> Place:
        """Where the value at `path` begins; of the nearest enclosing one if it was never written."""
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path, Place(self.file, 1, 1))

    def key_place(self, path: Keys) -> Place:
        """Where the key of the value at `path` was written."""
        return self._keys.get(path) or self.place(path)

    def place_within(self, path: Keys, offset: int) -> Place:
        """Where character `offset` of the text at `path` is; the text's beginning if it spans lines."""
        place = self.place(path)
        return Place(place.file, place.line, place.column + offset) if path in self._one_line else place

    def error(self, place: Place, problem: str, advice: str = "") -> TableError:
        return TableError(place.file, place.line, place.column, problem, advice)

    def _read(self) -> bytes:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise TableError(self.file, 1, 1, "there is no such table", "check the path") from None
        except OSError as error:
            raise TableError(self.file, 1, 1, f"cannot be read: {error.strerror}", "check the path") from None
        if len(data) > LARGEST:
            raise TableError(self.file, 1, 1, f"{len(data)} bytes are too many", f"a table has at most {LARGEST}")
        return data

    def _mapping(self) -> dict[str, Any]:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            node = yaml.compose(self.bytes.decode("utf-8-sig"), Loader=loader)
        except UnicodeDecodeError as error:
            line = self.bytes.count(b"\n", 0, error.start) + 1
            raise TableError(self.file, line, 1, "not UTF-8 text", "save the file as UTF-8") from None
        except yaml.reader.ReaderError as error:
            raise TableError(self.file, 1, 1, f"not text: character #x{_code(error):04x}", "remove it") from None
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from None
        except RecursionError:
            raise TableError(self.file, 1, 1, "nested too deeply", f"{DEEPEST} levels are allowed") from None
        if node is None:
            raise TableError(self.file, 1, 1, "the file is empty", "a table begins with version: 1")
        values = self._convert(node, (), set())
        if not isinstance(values, dict):
            raise self.error(self.place(()), "the table is not a mapping", "it begins with version: 1")
        return values

    def _syntax(self, error: yaml.MarkedYAMLError) -> TableError:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or "not YAML"
        advice = ""
        lines = self.bytes.decode("utf-8-sig").splitlines()
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        if "\t" in line[: len(line) - len(line.lstrip())] or "'\\t'" in problem:
            problem, advice = "a tab in the indentation", "YAML is indented with spaces"
        elif "but found another document" in problem or "single document" in (error.context or ""):
            problem, advice = "a second document", "one file is one table: remove the line ---"
        elif ": " in line and "mapping values are not allowed" in problem:
            advice = "put text that contains ': ' in quotes, and begin a nested mapping on its own line"
        row, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return TableError(self.file, row, column, f"not YAML: {problem}", advice)

    def _convert(self, node: yaml.Node, path: Keys, seen: set[int]) -> Any:
        place = Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)
        self._places[path] = place
        if id(node) in seen:
            raise self.error(place, "an alias", "write the value out: aliases are not part of the language")
        seen.add(id(node))
        if node.tag not in _TAGS:
            raise self.error(place, f"the tag {node.tag}", "remove it: tags are not part of the language")
        if len(path) > DEEPEST:
            raise self.error(place, "nested too deeply", f"{DEEPEST} levels are allowed")
        if isinstance(node, yaml.MappingNode):
            return self._convert_mapping(node, path, seen)
        if isinstance(node, yaml.SequenceNode):
            return [self._convert(item, (*path, index), seen) for index, item in enumerate(node.value)]
        if node.start_mark.line == node.end_mark.line:
            self._one_line.add(path)
            if node.style in ("'", '"'):
                self._places[path] = Place(place.file, place.line, place.column + 1)
        return node.value if node.style else scalar(node.value)  # plain has no style

    def _convert_mapping(self, node: yaml.MappingNode, path: Keys, seen: set[int]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = Place(self.file, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(place, "a key that is not text", "keys are names")
            key = key_node.value
            if key in result:
                first = self._keys[(*path, key)]
                raise self.error(place, f"{key!r} is written twice", f"the first is at {first}")
            self._keys[(*path, key)] = place
            result[key] = self._convert(value_node, (*path, key), seen)
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


def _code(error: yaml.reader.ReaderError) -> int:
    return error.character if isinstance(error.character, int) else ord(error.character[:1])
