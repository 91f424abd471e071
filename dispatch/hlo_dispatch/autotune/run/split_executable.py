"""Split executable: runs a partitioned module; its prologue runs once for each new argument list."""

# pyright: basic
# jax arrays have no complete type hints.
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from hlo_dispatch.autotune.run.executable import Executable
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.process.fork_safe_lock import ForkSafeLock

MAX_CACHED = 17
"""Maximum argument lists with cached preprocessed values: those of the rotation, and the first one."""


class SplitExecutable(Executable):
    """Prologue and steady-state program, called like the original module; thread-safe."""

    def __init__(self, split: Split) -> None:
        """Compile both; raises what either compilation raises."""
        super().__init__(split.program)
        self._split = split
        self._prologue = None if split.prologue is None else Executable(split.prologue)
        self._preprocessed: OrderedDict[int, tuple[Sequence[Any], list[Any]]] = OrderedDict()
        """Id of an argument list → the list (which keeps the id unique) and the program's arguments."""
        self._lock = ForkSafeLock()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        with self._lock:
            cached = self._preprocessed.get(id(arguments))
        if cached is None:
            cached = arguments, self._program_arguments(arguments)
            with self._lock:
                self._preprocessed[id(arguments)] = cached
                if len(self._preprocessed) > MAX_CACHED:
                    self._preprocessed.popitem(last=False)
        return super().__call__(cached[1])

    def _program_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """The steady-state program's arguments."""
        split = self._split
        preprocessed = [] if self._prologue is None else self._prologue([arguments[n] for n in split.prologue_inputs])
        return [*preprocessed, *(arguments[n] for n in (*split.frozen_inputs, *split.dynamic_inputs))]
