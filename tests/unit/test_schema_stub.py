"""Type stub of the message classes (schema.pyi): it agrees with schema.py."""

from __future__ import annotations

import ast
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from hlo_dispatch.ir import schema

_STUB = ast.parse(Path(schema.__file__).with_suffix(".pyi").read_text())
_SCALARS = {
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_INT64: "int",
    FieldDescriptor.TYPE_UINT32: "int",
    FieldDescriptor.TYPE_UINT64: "int",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "float",
    FieldDescriptor.TYPE_STRING: "str",
    FieldDescriptor.TYPE_BYTES: "bytes",
}


def _built() -> dict[str, Descriptor]:
    """Name of a class of the stub → the message that it declares: every message the module's file has."""
    return {
        f"{name}Proto": message for name, message in schema.ModuleProto.DESCRIPTOR.file.message_types_by_name.items()
    }


def _attribute_type(field: FieldDescriptor) -> str:
    of = f"{field.message_type.name}Proto" if field.message_type else _SCALARS[field.type]
    if field.is_repeated:
        kind = "Composite" if field.message_type else "Scalar"
        return f"Final[Repeated{kind}FieldContainer[{of}]]"
    return f"Final[{of}]" if field.message_type else of


def _argument_type(field: FieldDescriptor) -> str:
    of = f"{field.message_type.name}Proto" if field.message_type else _SCALARS[field.type]
    if field.is_repeated:
        return f"Iterable[{of}]"
    return f"{of} | None" if field.message_type else of


def _declared() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in _STUB.body if isinstance(node, ast.ClassDef)}


def _attributes(declared: ast.ClassDef) -> dict[str, str]:
    fields = [node for node in declared.body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): ast.unparse(node.annotation) for node in fields}


def _arguments(declared: ast.ClassDef) -> dict[str, str]:
    (initialize,) = [node for node in declared.body if isinstance(node, ast.FunctionDef)]
    assert initialize.name == "__init__"
    return {a.arg: ast.unparse(a.annotation) for a in initialize.args.kwonlyargs if a.annotation is not None}


def test_the_stub_declares_every_message():
    assert set(_declared()) == set(_built())


def test_the_stub_declares_every_field_with_its_type():
    for name, message in _built().items():
        fields = {field.name: _attribute_type(field) for field in message.fields}
        assert _attributes(_declared()[name]) == fields, name


def test_a_message_is_made_with_any_of_its_fields():
    for name, message in _built().items():
        arguments = {field.name: _argument_type(field) for field in message.fields}
        assert _arguments(_declared()[name]) == arguments, name


def test_public_names_exist_in_both():
    stubbed = {
        node.target.id for node in _STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    there = {name for name in vars(schema) if not name.startswith("_")}
    assert stubbed <= there
    classes = {name for name in there if name.endswith("Proto")}
    assert classes <= set(_declared())
