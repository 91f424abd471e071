"""HLO text in and out, through jaxlib: the only file that touches its HLO bindings."""

from __future__ import annotations

from typing import Any

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module


def _bindings() -> Any:
    try:
        # An extension module, which jaxlib describes nowhere.
        from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
    except ImportError as error:
        raise ModuleError(f"HLO text needs jaxlib 0.10.2 or newer, and importing it failed ({error})") from None
    return _hlo  # pyright: ignore[reportUnknownVariableType]


def from_text(text: str) -> bytes:
    """The serialized HloModuleProto of HLO text.

    Raises:
        ModuleError: the text does not parse; the message is the parser's own, with its position.
    """
    try:
        return _bindings().hlo_module_from_text(text).as_serialized_hlo_module_proto()
    except ModuleError:
        raise
    except Exception as error:  # jaxlib raises whatever the status becomes: XlaRuntimeError, ValueError …
        raise ModuleError(f"this HLO text does not parse: {first_lines(error)}") from None


def parsed(program: bytes | str) -> Module:
    """The module of HLO text, or of a serialized HloModuleProto.

    Raises:
        ModuleError: it does not parse.
    """
    return Module.from_bytes(from_text(program) if isinstance(program, str) else program)


def to_text(serialized: bytes) -> str:
    """HLO text of a serialized HloModuleProto.

    Raises:
        ModuleError: XLA does not accept the module.
    """
    try:
        return _bindings().HloModule.from_serialized_hlo_module_proto(serialized).to_string()
    except ModuleError:
        raise
    except Exception as error:
        raise ModuleError(f"XLA does not accept this module: {first_lines(error)}") from None


def first_lines(error: Exception) -> str:
    """The first lines of jaxlib's error message, without a stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) or type(error).__name__
