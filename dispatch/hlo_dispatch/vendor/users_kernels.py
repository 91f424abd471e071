"""Users' own kernels: XLA FFI handlers in shared libraries that a user's table names.

Nothing is loaded before the table is installed. A library stays loaded for as long as the process lives:
executables hold the handler's address.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlo_dispatch.errors import TableError
from hlo_dispatch.pattern import KernelBinding, Table
from hlo_dispatch.vendor.library import Library


@dataclass(frozen=True)
class Handler:
    """An FFI handler, loaded."""

    target: str
    path: Path
    symbol: str
    function: Any
    """The ctypes function, which also keeps its library loaded."""


_registered: dict[str, Handler] = {}


def open_handlers(table: Table) -> list[Handler]:
    """Load every kernel of the table that is in a user's own library.

    Raises:
        TableError: a library cannot be loaded, lacks the symbol, or its target is another kernel's already.
    """
    return [_open(binding) for binding in table.kernels.values() if binding.is_user_defined]


def library_of(binding: KernelBinding) -> Library:
    """The user's own library that a kernel is in, not loaded; the version identifies the current build."""
    assert binding.path is not None
    status = binding.path.stat()
    return Library(binding.path.name, binding.path, f"{status.st_size} {status.st_mtime_ns}", "its own")


def register(handlers: Iterable[Handler], into: Callable[[str, Any], None]) -> None:
    """Call `into` (target, ctypes function) for each handler; two threads may register one twice.

    No lock is held meanwhile: `into` takes JAX's.
    """
    for handler in handlers:
        if handler.target not in _registered:
            into(handler.target, handler.function)
            _registered[handler.target] = handler


def _open(binding: KernelBinding) -> Handler:
    assert binding.path is not None
    known = _registered.get(binding.target)
    if known is not None:
        if (known.path, known.symbol) == (binding.path, binding.symbol):
            return known
        problem = f"the target {binding.target} is {known.symbol} of {known.path} already"
        raise _error(binding, problem, "choose another target, or start a new process")
    try:
        library = ctypes.CDLL(str(binding.path))
    except OSError as error:
        raise _error(binding, f"{binding.path} cannot be loaded: {error}", "build it for this machine") from None
    try:
        function = library[binding.symbol]
    except AttributeError:
        problem = f"{binding.path} has no symbol {binding.symbol!r}"
        advice = f"`nm -D {binding.path.name}` lists those it has; XLA_FFI_DEFINE_HANDLER_SYMBOL makes one"
        raise _error(binding, problem, advice) from None
    return Handler(binding.target, binding.path, binding.symbol, function)


def _error(binding: KernelBinding, problem: str, advice: str) -> TableError:
    place = binding.symbol_location or binding.location
    return TableError(place.file, place.line, place.column, problem, advice)
