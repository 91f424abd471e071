"""Reused MLIR contexts: one context serves many modules, as in newer JAX.

An MLIR context loads every dialect that JAX knows, which takes longer than lowering a test's small program; jax 0.10.2
makes one for each module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jax._src.interpreters import mlir

_MOST_MODULES = 10
"""As in newer JAX: what is interned in a context (types, attributes, locations) is only freed with it."""


class _Kept(threading.local):
    """The context of each thread."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._modules = _MOST_MODULES

    def context(self) -> Any:
        """As JAX's `make_ir_context`."""
        if self._modules == _MOST_MODULES:
            self._context, self._modules = self._make(), 0
        self._modules += 1
        return self._context


def keep_contexts() -> None:
    """From now on, in this process."""
    if not hasattr(mlir, "_thread_local_context"):
        mlir.make_ir_context = _Kept(mlir.make_ir_context).context
