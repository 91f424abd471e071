"""Module files of the command line: format detection on reading, atomic writes.

Reads text, a serialized `HloModuleProto`, MLIR bytecode, and the `HloProto` wrapper that `--xla_dump_hlo_as_proto`
writes. A file is written under a temporary name next to its target and renamed over it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from hlo_dispatch.errors import HloDispatchError, ModuleError

TEXT_SUFFIXES = (".hlo", ".txt")
BINARY_SUFFIXES = (".pb",)
_FIRST_FIELD = 0x0A
"""Tag of field 1 with a length: a module's name, or a wrapper's module."""


def read_module(path: str) -> bytes | str:
    """The module in `path` (`-`: standard input): text as str, a serialized module as bytes."""
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    if not content.strip():
        raise ModuleError(f"{path}: the file is empty; expected HLO (text or a serialized HloModuleProto) or StableHLO")
    return content.decode() if _is_text(content) else _unwrapped(content)


def writes_text(path: str) -> bool:
    """Whether `path` asks for text (True) or for a serialized module, by its suffix; `-` is text."""
    suffix = Path(path).suffix
    if path == "-" or suffix in TEXT_SUFFIXES:
        return True
    if suffix in BINARY_SUFFIXES:
        return False
    known = ", ".join((*TEXT_SUFFIXES, *BINARY_SUFFIXES))
    raise HloDispatchError(f"{path}: the output's suffix names its format and must be one of {known}")


def write_atomically(path: str, content: bytes) -> None:
    """Put `content` at `path`: all of it or, if anything fails, none.

    Raises:
        OSError: it cannot be written; `filename` is `path`, whatever it was written as at first.
    """
    if path == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise HloDispatchError(f"{path}: this is a directory; name a file to write")
        target.write_bytes(content)  # a device or a pipe: there is nothing to replace
        return
    try:
        _replace(target, content)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror or str(problem), path) from None


def _replace(target: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def named(path: str) -> Generator[None]:
    """A context that prefixes module errors with the file."""
    try:
        yield
    except ModuleError as error:
        raise ModuleError(f"{path}: {error}") from None


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or what a new file would get."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _is_text(content: bytes) -> bool:
    """Text has no control characters; a serialized module is full of them."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    if text.lstrip().startswith(("HloModule", "//", "/*")):
        return True
    return not any(character < " " and character not in "\t\n\r\f" for character in text[:4096])


def _unwrapped(content: bytes) -> bytes:
    """The module inside an HloProto; anything else comes back as it is.

    Both begin with field 1. A wrapper's holds a module, which begins with field 1 again, so with a byte
    that no module's name begins with.
    """
    if content[0] != _FIRST_FIELD:
        return content
    length, position, shift = 0, 1, 0
    while position < len(content):
        byte = content[position]
        length |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    inner = content[position : position + length]
    return inner if inner[:1] == bytes([_FIRST_FIELD]) and len(inner) == length else content


def wrapped(serialized: bytes) -> bytes:
    """The HloProto around a serialized module."""
    length, size = len(serialized), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([_FIRST_FIELD, *size, length]) + serialized
