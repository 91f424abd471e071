"""Serialized executables of jitted functions: JAX loads one where it would compile the function.

A lowered function has the client that compiles it. For one compilation that is a client which loads a serialized
executable instead; everything else, the function's fast path included, is as after a compilation.
"""

# pyright: basic
# jax has no complete type hints, and exports none of what is private.
from __future__ import annotations

import contextlib
import logging
from typing import Any

_logger = logging.getLogger("hlo_dispatch")


def serialized_executable_of(compiled: Any) -> bytes | None:
    """Serialize the executable of a `jax.stages.Compiled`; None where it cannot be."""
    try:
        return bytes(compiled.runtime_executable().serialize())
    except Exception as error:  # jaxlib's exception of an XLA status
        _logger.warning("an executable cannot be serialized, and will be compiled again (%s)", error)
        return None


def compiled_from(lowered: Any, serialized: bytes) -> Any:
    """The `jax.stages.Compiled` of a lowered function, loaded where that is possible, and compiled where it is not."""
    arguments = getattr(getattr(lowered, "_lowering", None), "compile_args", None)
    if not isinstance(arguments, dict) or "backend" not in arguments:
        return lowered.compile()  # a release of JAX's that keeps it elsewhere
    client = arguments["backend"]
    loading = _LoadingClient(client, serialized)
    arguments["backend"] = loading
    try:
        return lowered.compile()
    finally:
        arguments["backend"] = client
        loading.serialized = None


class _LoadingClient:
    """A client of XLA's that loads a serialized executable where it is asked to compile."""

    def __init__(self, client: Any, serialized: bytes) -> None:
        self._client = client
        self.serialized: bytes | None = serialized
        """None once it is not needed any more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def compile_and_load(self, module: Any, executable_devices: Any, compile_options: Any, **others: Any) -> Any:
        if self.serialized is not None and not others:
            # XLA refuses what it cannot read.
            with contextlib.suppress(Exception):
                return self._client.deserialize_executable(self.serialized, executable_devices, compile_options)
        return self._client.compile_and_load(
            module, executable_devices=executable_devices, compile_options=compile_options, **others
        )
