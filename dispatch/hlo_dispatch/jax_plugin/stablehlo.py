"""StableHLO import: parses programs of any front end with jaxlib's MLIR, and refuses what XLA:CPU cannot compile."""

# pyright: basic, reportPrivateImportUsage=false
# jax has no complete type hints, and exports none of what is private.
from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Generator
from typing import Any

from hlo_dispatch.errors import ModuleError

MAIN = "main"
_PORTABLE = b"StableHLO_v"
"""Producer string of portable bytecode, within the first bytes of a file."""
_HEADER = 64
_PLACE = re.compile(r":(\d+):(\d+)")
_FOREIGN = re.compile(r"Dialect `(\w+)' not found|`!?\"?(\w+)\"?<.*unregistered dialect")
_DEVICES = {"mhlo.num_partitions": "partitions", "mhlo.num_replicas": "replicas"}


def named(program: bytes | str, name: str) -> tuple[bytes, str]:
    """Rename a program; returns its bytecode and its original name.

    Raises:
        ModuleError: it does not parse, or cannot be compiled for one CPU: several modules, no entry, dynamic
            dimensions, several devices.
    """
    from jax._src.lib.mlir import ir
    from jax.interpreters import mlir

    with mlir.make_ir_context(), ir.Location.unknown():
        with _parse_errors_as_sentences():
            module = _parsed(program, ir)
        _refuse_several_devices(module)
        _refuse_types(_entry(module, ir), ir)
        attributes = module.operation.attributes
        original_name = ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else MAIN
        attributes["sym_name"] = ir.StringAttr.get(name)
        written = io.BytesIO()
        module.operation.write_bytecode(written)
        return written.getvalue(), original_name


def _parsed(program: bytes | str, ir: Any) -> Any:
    from jax.extend.mlir import deserialize_portable_artifact

    # Raises for damaged bytecode, where the function below would print.
    module = ir.Module.parse(program)
    is_portable = isinstance(program, bytes) and _PORTABLE in program[:_HEADER]
    return deserialize_portable_artifact(program) if is_portable else module


@contextlib.contextmanager
def _parse_errors_as_sentences() -> Generator[None]:
    """Convert MLIR's first diagnostic into a ModuleError, with its location and a remedy."""
    try:
        yield
    except Exception as error:  # MLIRError, or jaxlib's exception of a status
        first: Any = next(iter(getattr(error, "error_diagnostics", [])), None)
        message = " ".join(str(error if first is None else first.message).split())
        place = _PLACE.search("" if first is None else str(first.location))
        where = f"line {place[1]}, column {place[2]}: " if place and int(place[1]) else ""
        foreign = _FOREIGN.search(message)
        if foreign is not None:
            raise ModuleError(where + not_compiled(f"the dialect {foreign[1] or foreign[2]}")) from None
        advice = "" if where else "; the file is cut or damaged, or a newer StableHLO than this jaxlib's wrote it"
        raise ModuleError(f"this StableHLO does not parse: {where}{message}{advice}") from None


def not_compiled(what: str) -> str:
    """Sentence about an op or type that XLA does not compile, with the remedy."""
    return f"{what} is nothing that XLA compiles: lower it to StableHLO where it was made"


def _entry(module: Any, ir: Any) -> Any:
    """The entry function; a single public function is renamed to `main`, which XLA requires.

    Raises:
        ModuleError: there is none, or it is ambiguous.
    """
    operations = [operation.operation for operation in module.body.operations]
    inner = [operation for operation in operations if operation.name == "builtin.module"]
    if inner:
        count = f"{len(inner)} modules" if len(inner) > 1 else "a module within a module"
        raise ModuleError(f"there are {count} in this file, and one is compiled at a time: give each a file of its own")
    functions = {
        ir.StringAttr(operation.attributes["sym_name"]).value: operation
        for operation in operations
        if operation.name == "func.func" and len(operation.regions[0].blocks)
    }
    if MAIN in functions:
        return functions[MAIN]
    public = {name: operation for name, operation in functions.items() if _is_public(operation, ir)}
    if not public:
        raise ModuleError("there is no function in this StableHLO that could be compiled: it needs a public @main")
    if len(public) > 1:
        names = ", ".join(f"@{name}" for name in public)
        raise ModuleError(f"it is not clear which of {names} is to be compiled: call that one @{MAIN}")
    ((name, operation),) = public.items()
    ir.SymbolTable.replace_all_symbol_uses(name, MAIN, module.operation)
    ir.SymbolTable.set_symbol_name(operation, MAIN)
    return operation


def _is_public(function: Any, ir: Any) -> bool:
    attributes = function.attributes
    return "sym_visibility" not in attributes or ir.StringAttr(attributes["sym_visibility"]).value == "public"


def _refuse_several_devices(module: Any) -> None:
    attributes = module.operation.attributes
    for attribute, what in _DEVICES.items():
        count = int(attributes[attribute].value) if attribute in attributes else 1
        if count > 1:
            raise ModuleError(
                f"this program is for {count} {what} ({attribute}): export it for one device, without shardings"
            )


def _refuse_types(function: Any, ir: Any) -> None:
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    for what, types in (("argument", signature.inputs), ("result", signature.results)):
        for number, kind in enumerate(types):
            if not isinstance(kind, ir.ShapedType):
                continue
            if not isinstance(kind, ir.RankedTensorType | ir.UnrankedTensorType):
                raise ModuleError(not_compiled(f"{what} {number} of @{MAIN}, {kind},"))
            if not (kind.has_rank and kind.has_static_shape):
                raise ModuleError(
                    f"{what} {number} of @{MAIN} is {kind}, and XLA:CPU compiles sizes that are known: write them into "
                    "the program, or export it for concrete shapes"
                )
