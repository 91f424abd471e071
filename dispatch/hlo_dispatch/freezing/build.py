"""From the module that XLA optimized to its two halves: dispatched, packed, cut."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from hlo_dispatch.freezing.cut import cut, uncut
from hlo_dispatch.freezing.hoisting import hoist
from hlo_dispatch.freezing.packing import pack
from hlo_dispatch.hlo.split import Split
from hlo_dispatch.rewriting.hazards import CannotRebuild
from hlo_dispatch.rewriting.measured_pass import informed
from hlo_dispatch.rewriting.rewriter import Rewriter


def build(
    serialized: bytes, frozen: AbstractSet[int], rewriter: Rewriter, widened: AbstractSet[int] = frozenset()
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
    targets = {kernel.target: name for name, kernel in rewriter.table.kernels.items()}
    threads = rewriter.machine.threads

    def split(whole: bytes, early: AbstractSet[int]) -> Split:
        dispatched, packed = pack(whole, early, targets, threads)
        try:
            hoisted, names = hoist(dispatched, early, threads, packed)
            return cut(hoisted, early, threads, names)
        except CannotRebuild:
            # Something has to run after what would go.
            return uncut(dispatched, early, threads)

    early = frozenset(frozen) - widened
    knowing = informed(replace(rewriter, frozen=early), split)
    dispatched, report = knowing.run(serialized)
    dispatched, packed = pack(dispatched or serialized, early, targets)
    return replace(cut(dispatched, frozen, threads, packed), report=report)
