"""Program language detection: HLO or StableHLO, text or MLIR bytecode."""

from __future__ import annotations

import re

_BYTECODE = b"ML\xefR"
"""What MLIR's bytecode begins with."""
_COMMENTS = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_HLO = "HloModule"
_FIRST_WORD = re.compile(r"module\b(?!\.)|builtin\.module\b|func\.func\b|\"(?:builtin|func|stablehlo)\.|[#!][\w$.]+")


def is_stablehlo(program: bytes | str) -> bool:
    """Whether this is a module of MLIR's, as text or as bytecode; HLO and anything else is none."""
    if isinstance(program, bytes):
        return program.startswith(_BYTECODE)
    return _FIRST_WORD.match(program, _begin(program)) is not None


def is_hlo(program: bytes | str) -> bool:
    """Whether this is HLO text, by its first word."""
    return isinstance(program, str) and program.startswith(_HLO, _begin(program))


def _begin(text: str) -> int:
    """Offset of the first character after leading comments."""
    comments = _COMMENTS.match(text)
    return comments.end() if comments is not None else 0
