"""From the module that XLA optimized to its two halves: dispatched, packed, cut."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from hlo_dispatch.driver.measured_pipeline import with_measurements
from hlo_dispatch.ir.split_module import Split
from hlo_dispatch.passes.partition.splitter import split
from hlo_dispatch.pipeline import Pipeline


def build(
    serialized: bytes, frozen: AbstractSet[int], rewriter: Pipeline, widened: AbstractSet[int] = frozenset()
) -> Split:
    """Dispatch the module's regions, and cut off what depends on nothing but the frozen parameters.

    Args:
        serialized: the optimized module, as XLA made it.
        frozen: numbers of the entry's parameters that are frozen.
        rewriter: the pass; what its policy measures is measured here.
        widened: frozen parameters that are held narrower than they are computed with; what is made of them is made in
            each call, where it would be larger.

    Raises:
        ModuleError: the bytes are not a module.
    """
    early = frozenset(frozen) - widened
    knowing = with_measurements(replace(rewriter, frozen=early, prepares=False))
    dispatched, report = knowing.run(serialized)
    halves = split(dispatched or serialized, early, widened, table=rewriter.table, threads=rewriter.machine.threads)
    return replace(halves, report=report.joined(halves.call_groups, halves.group_of_call))
