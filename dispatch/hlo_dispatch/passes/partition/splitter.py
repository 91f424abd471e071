"""Both halves of a dispatched module: weights packed for its kernels, early values moved out of loops, then cut."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

from hlo_dispatch.ir.split_module import Split, Splitter
from hlo_dispatch.passes.call_groups.grouping import joined
from hlo_dispatch.passes.huge_page_advice import with_huge_pages
from hlo_dispatch.passes.partition.buffer_coalescing import held_together
from hlo_dispatch.passes.partition.loop_invariant_code_motion import hoist
from hlo_dispatch.passes.partition.prepacking import pack
from hlo_dispatch.passes.partition.split_at_frontier import cut, uncut
from hlo_dispatch.passes.write_after_read_hazards import CannotRebuild
from hlo_dispatch.pattern import Table


def splitter(table: Table, threads: int) -> Splitter:
    """Cuts modules that hold kernels of a table, for so many threads of XLA's."""
    return partial(split, table=table, threads=threads)


def split(
    whole: bytes, early: AbstractSet[int], widened: AbstractSet[int] = frozenset(), *, table: Table, threads: int
) -> Split:
    """The halves of one module.

    Args:
        whole: the dispatched module.
        early: numbers of its frozen parameters.
        widened: further ones, of which nothing is made that would be larger: neither packed weights nor what is moved
            out of a loop.

    Raises:
        ModuleError: the bytes are not a module.
    """
    targets = {kernel.target: name for name, kernel in table.kernels.items()}
    dispatched, packed = pack(whole, early, targets, threads)
    try:
        hoisted, names = hoist(dispatched, early, threads, packed)
        halves = cut(hoisted, early | widened, threads, names)
    except CannotRebuild:
        # Something has to run after what would go.
        halves = uncut(dispatched, early | widened)
    program, found = joined(halves.program)
    halves = held_together(replace(halves, program=program, sequences=found.sequences, joined=found.calls))
    return replace(halves, program=with_huge_pages(halves.program))
