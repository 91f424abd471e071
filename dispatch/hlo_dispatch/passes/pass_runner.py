"""Pass runner: runs a list of passes on a module, times each and records what it changed.

In strict mode, as in tests, and where modules are dumped, the verifier runs behind each pass that changed something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.verify import verify
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.process.environment_switches import is_strict


@dataclass(frozen=True)
class Pass:
    """A pass: its name, and the function that edits a module in place."""

    name: str
    run: Callable[[Module, PassContext], AbstractSet[int]]
    """Returns ids of the computations that it changed."""
    is_decisive: bool = False
    """Whether no later pass runs where this one changes nothing, unless a pass before moved code."""


def run_passes(passes: Iterable[Pass], module: Module, context: PassContext) -> bool:
    """Run passes in order; returns whether the last one was reached.

    Raises:
        ModuleError: the verifier rejects what a pass made; a bug of ours.
    """
    for one in passes:
        begin = time.perf_counter()
        changed = one.run(module, context)
        context.record(one.name, begin, module, changed)
        context.changed |= changed
        if changed and (is_strict() or context.dump is not None):
            _verify(module, changed, one.name)
        if changed and context.dump is not None:
            context.dump.write(module, one.name)
        if one.is_decisive and not changed and not context.is_moved:
            return False
    return True


def _verify(module: Module, changed: AbstractSet[int], name: str) -> None:
    try:
        verify(module, changed)
    except ModuleError as error:
        raise ModuleError(f"behind the pass {name}: {error}") from None


def verify_changed(module: Module, context: PassContext) -> set[int]:
    """Verify what the passes before have changed, and a prologue; changes nothing.

    Raises:
        ModuleError: the verifier rejects it; a bug of ours.
    """
    verify(module, context.changed)
    if context.split is not None and context.split.prologue is not None:
        verify(context.split.prologue)
    return set()
