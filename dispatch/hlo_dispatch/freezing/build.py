"""Build of a frozen program: dispatches the optimized module, then splits it into prologue and steady-state program."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from hlo_dispatch.driver.measured_pipeline import with_measurements
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.pipeline import Pipeline


def build(
    module: Module, frozen: AbstractSet[int], pipeline: Pipeline, widened: AbstractSet[int] = frozenset()
) -> Split:
    """Dispatch the module's regions and split off the prologue, which depends on frozen parameters alone.

    Args:
        module: the optimized module, as XLA made it; it does not change.
        frozen: numbers of the entry's parameters that are frozen.
        pipeline: the pass pipeline; its policy's measurements happen here.
        widened: frozen parameters that are stored narrower than they are computed with; values computed from them
            belong to the steady-state program where they would be larger.
    """
    static = frozenset(frozen) - widened
    return with_measurements(replace(pipeline, frozen=static)).freeze(module.copy(), widened)
