"""Cache of stock XLA's compiles in this process.

The pass has JAX forget what is compiled whenever it comes or goes, so that each `jnp.ones` beside a test's own program,
and each program that several tests compare with, would be compiled anew. Only stock XLA's work is kept: a compile that
is shown to anybody in XLA's hook is always done, and so is one of a module with a call of ours in it.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Generator, Sequence
from typing import Any

from jax._src import compiler
from jax._src.lib import _xla

import hlo_dispatch
from side_by_side import QUICKLY

_PLACEHOLDERS = "hlo_dispatch_stand_ins"
"""The callback of module substitution; it stays registered, and ignores other modules."""
_PASS = "hlo_dispatch"
"""The pass; it stays, too, and leaves everything alone while it is not installed."""
_NOT_STOCKS = ("hlo_dispatch", "callback")
_LONGEST_TEXT = 1 << 16
_MOST_KEPT = 2000


class _Hook:
    """The callbacks in XLA's hook."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self.arrivals = 0
        """How many have ever come."""
        self._register, self._clear = _xla.register_xla_transform, _xla.clear_xla_transform

    def register(self, name: str, stage: int, callback: Any) -> None:
        self.arrivals += 1
        self._names.append(name)
        self._register(name, stage, callback)

    def clear(self, name: str, stage: int) -> bool:
        cleared = self._clear(name, stage)
        if name in self._names:
            self._names.remove(name)
        return cleared

    @property
    def is_empty(self) -> bool:
        """Whether a module is shown to nobody who may have something to say to it."""
        return all(name == _PLACEHOLDERS or (name == _PASS and not hlo_dispatch.installed()) for name in self._names)


class _Kept:
    """Executables by what they were compiled from."""

    def __init__(self, hook: _Hook) -> None:
        self._hook = hook
        self._lock = threading.Lock()
        self._compile = compiler.backend_compile_and_load
        self._executables: collections.OrderedDict[tuple[Any, ...], Any] = collections.OrderedDict()
        self.options: dict[str, Any] = {}
        """Of every compile that says nothing else."""

    def compile(
        self, backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Sequence[Any]
    ) -> Any:
        """As JAX's function of this name."""
        given = dict(options.env_option_overrides)
        options.env_option_overrides = [*given.items(), *((k, v) for k, v in self.options.items() if k not in given)]
        arrivals = self._hook.arrivals
        text = str(module) if self._hook.is_empty and not host_callbacks else ""
        if not text or len(text) > _LONGEST_TEXT or any(word in text for word in _NOT_STOCKS):
            return self._compile(backend, module, executable_devices, options, host_callbacks)
        devices = tuple(device.id for device in executable_devices)
        key = (id(backend), text, devices, options.SerializeAsString())
        with self._lock:
            found = self._executables.get(key)
            if found is not None:
                self._executables.move_to_end(key)
                return found
        made = self._compile(backend, module, executable_devices, options, host_callbacks)
        with self._lock:
            # Somebody may have come while it was compiled.
            if self._hook.arrivals == arrivals and self._hook.is_empty:
                self._executables[key] = made
                while len(self._executables) > _MOST_KEPT:
                    self._executables.popitem(last=False)
        return made


_kept: list[_Kept] = []


def keep_what_stock_compiles() -> None:
    """From now on, in this process."""
    hook = _Hook()
    _xla.register_xla_transform, _xla.clear_xla_transform = hook.register, hook.clear
    _kept.append(_Kept(hook))
    compiler.backend_compile_and_load = _kept[-1].compile


@contextlib.contextmanager
def compiled_quickly() -> Generator[None]:
    """XLA's own code is not what is tested inside the block (`side_by_side.QUICKLY`)."""
    for kept in _kept:
        kept.options = QUICKLY
    try:
        yield
    finally:
        for kept in _kept:
            kept.options = {}
