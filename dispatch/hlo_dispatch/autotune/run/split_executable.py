"""Running a module that was cut in two: what is frozen is prepared when it is first seen."""

# pyright: basic
# jax arrays have no complete type hints.
from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from hlo_dispatch.autotune.run.executable import Executable
from hlo_dispatch.ir.split_module import Split

MOST_REMEMBERED = 17
"""Lists of arguments: those that timing takes in turns, and the first one."""


class SplitExecutable(Executable):
    """Called like the whole module; safe to call from several threads."""

    def __init__(self, split: Split) -> None:
        """Raises whatever compiling either half raises."""
        super().__init__(split.program)
        self._split = split
        self._preparation = None if split.prologue is None else Executable(split.prologue)
        self._prepared: OrderedDict[int, tuple[Sequence[Any], list[Any]]] = OrderedDict()
        """Id of a list of arguments → the list, which keeps its id its own, and what was prepared of it."""
        self._lock = threading.Lock()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        with self._lock:
            known = self._prepared.get(id(arguments))
        if known is None:
            known = arguments, self._read(arguments)
            with self._lock:
                self._prepared[id(arguments)] = known
                if len(self._prepared) > MOST_REMEMBERED:
                    self._prepared.popitem(last=False)
        return super().__call__(known[1])

    def _read(self, arguments: Sequence[Any]) -> list[Any]:
        """What the program takes."""
        split = self._split
        prepared = [] if self._preparation is None else self._preparation([arguments[n] for n in split.prologue_inputs])
        return [*prepared, *(arguments[n] for n in (*split.frozen_inputs, *split.dynamic_inputs))]
