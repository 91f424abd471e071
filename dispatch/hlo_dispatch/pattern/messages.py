"""Schema error messages: turns pydantic's complaints into one TableError with location, problem and advice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from hlo_dispatch.errors import TableError
from hlo_dispatch.pattern.schema import TableFile
from hlo_dispatch.pattern.source import Source

_KINDS: dict[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
_WANTED = {
    "string_type": "text",
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
}


def schema_error(source: Source, error: ValidationError) -> TableError:
    """The first unknown key if there is one, since it explains what is missing; else the first mistake."""
    details = error.errors(include_url=False)
    unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
    found = [_either(source, group) or _located(source, group[0]) for group in _grouped(source, unknown or details)]
    return min(found, key=lambda error: (error.line, error.column))


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?`, or the list of what is known."""
    known = list(known)
    near = difflib.get_close_matches(word, known, 1, 0.6)
    return f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"


def _grouped(source: Source, details: list[Any]) -> list[list[Any]]:
    """Complaints about one value, grouped: several are the branches of a union."""
    groups: dict[Any, list[Any]] = {}
    for detail in details:
        apart = detail["loc"] if detail["type"] in ("missing", "extra_forbidden") else None
        groups.setdefault((_written(source, detail["loc"]), apart), []).append(detail)
    return list(groups.values())


def _either(source: Source, group: list[Any]) -> TableError | None:
    """The error of a union, by the field's description instead of its branches."""
    path, value = _written(source, group[0]["loc"]), group[0]["input"]
    if len(group) < 2 or not path or value is None:
        return None
    model = _model_at(path[:-1])
    field = model.model_fields.get(str(path[-1])) if model else None
    if field is None or field.description is None:
        return None
    given = repr(value) if isinstance(value, str) else _kind(value)
    return source.error(source.location(path), f"{path[-1]} is {given}", f"it should be {field.description}")


def _located(source: Source, detail: Any) -> TableError:
    path, kind = _written(source, detail["loc"]), detail["type"]
    name = path[-1] if path else "the table"
    label = f"item {name + 1}" if isinstance(name, int) else str(name)
    if "[key]" in detail["loc"]:
        if kind == "literal_error":
            return source.error(source.key_location(path), f"unknown key {label!r}", _expected(detail))
        return source.error(source.key_location(path), f"{label!r} is not a name", _naming(path[0] == "kernels"))
    if kind == "extra_forbidden":
        return source.error(source.key_location(path), f"unknown key {label!r}", suggest(label, _fields(path[:-1])))
    if kind == "missing":
        field = detail["loc"][-1]
        entry = source.key_location(path) if path else source.location(())
        inside = f"{label} has no {field!r}" if path else f"the table has no {field!r}"
        return source.error(entry, inside, _meaning(path, str(field)))
    return _bad_value(source, path, label, detail)


def _bad_value(source: Source, path: tuple[Any, ...], label: str, detail: Any) -> TableError:
    kind, value, location = detail["type"], detail["input"], source.location(path)
    if path == ("version",):
        return source.error(location, f"version {value!r} is not known", "this release reads version: 1")
    if value is None:
        return source.error(source.key_location(path), f"{label} is empty", "give it a value or remove it")
    expected = _WANTED.get(kind)
    if expected:
        return source.error(
            location, f"{label} is {_kind(value)}", f"it should be {expected}{_quoted(value, expected)}"
        )
    if kind == "literal_error":
        return source.error(location, f"{label} is {value!r}", _expected(detail))
    if kind in ("too_short", "string_too_short"):
        return source.error(location, f"{label} is empty", "give it a value")
    if kind == "string_pattern_mismatch":
        of_kernel = path[-1] == "kernel" or path[-2:] == ("kernel", "name")
        return source.error(location, f"{label} is {value!r}, which is not a name", _naming(of_kernel))
    return source.error(location, f"{label} is {value!r}", detail["msg"].replace("Input should", "it should"))


def _written(source: Source, location: tuple[Any, ...]) -> tuple[Any, ...]:
    """Pydantic's location without the names of union branches and its marks for keys."""
    path: tuple[Any, ...] = ()
    value: Any = source.values
    for step in location:
        if (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int)):
            path, value = (*path, step), cast(Any, value)[step]
    return path


def _model_at(path: tuple[Any, ...]) -> type[BaseModel] | None:
    """The schema's model of the mapping at `path`."""
    model: Any = TableFile
    for step in path:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            model = _model_in(model)
            continue
        field = model.model_fields.get(step)
        if field is None:
            return None
        model = field.annotation
    return model if isinstance(model, type) and issubclass(model, BaseModel) else _model_in(model)


def _model_in(annotation: Any) -> Any:
    """The model in `dict[Name, Model]` or `Model | None`."""
    arguments = getattr(annotation, "__args__", ())
    for argument in arguments:
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return None


def _fields(path: tuple[Any, ...]) -> list[str]:
    model = _model_at(path)
    return list(model.model_fields) if model else []


def _meaning(path: tuple[Any, ...], field: str) -> str:
    model = _model_at(path)
    description = model.model_fields[field].description if model and field in model.model_fields else None
    return f"add {field}: {description}" if description else f"add {field}"


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    return next((words for kind, words in _KINDS.items() if type(value) is kind), "of another type")


def _quoted(value: Any, expected: str) -> str:
    return ": put it in quotes" if expected == "text" and isinstance(value, int | float) else ""


def _expected(detail: Any) -> str:
    return f"it should be {detail['ctx']['expected']}"


def _naming(of_kernel: bool) -> str:
    parts = ", in two parts or more, such as onednn.matmul" if of_kernel else ""
    return f"names are lower case letters, digits and _{parts}"
