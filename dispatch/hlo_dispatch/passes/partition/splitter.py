"""Splitter: prepacking, loop-invariant code motion, split at the frontier, call grouping, buffer coalescing."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.split_module import Split, Splitter
from hlo_dispatch.passes.call_groups.grouping import group_calls
from hlo_dispatch.passes.huge_page_advice import advise_huge_pages
from hlo_dispatch.passes.partition.buffer_coalescing import coalesce_buffers
from hlo_dispatch.passes.partition.loop_invariant_code_motion import hoist_loop_invariants
from hlo_dispatch.passes.partition.prepacking import prepack
from hlo_dispatch.passes.partition.split_at_frontier import split_at, without_prologue
from hlo_dispatch.passes.write_after_read_hazards import RewriteUnsupported
from hlo_dispatch.pattern import Table


def splitter(table: Table, threads: int) -> Splitter:
    """A splitter of modules with kernel calls of a table, for so many threads of XLA's."""
    return partial(split, table=table, threads=threads)


def split(
    serialized: bytes, frozen: AbstractSet[int], widened: AbstractSet[int] = frozenset(), *, table: Table, threads: int
) -> Split:
    """Split one dispatched module into prologue and steady-state program.

    Args:
        serialized: the dispatched module.
        frozen: numbers of its frozen parameters.
        widened: further frozen parameters, of narrower stored types: they are neither prepacked nor hoisted, which
            would make them larger.

    Raises:
        ModuleError: the bytes are not a module.
    """
    targets = {kernel.target: name for name, kernel in table.kernels.items()}
    module = Module.from_bytes(serialized)
    prepacked = prepack(module, frozen, targets, threads)
    whole = module.copy()
    try:
        names = hoist_loop_invariants(module, frozen, threads, prepacked)
        halves = split_at(module, frozen | widened, threads, names)
    except RewriteUnsupported:
        # A control dependency on a static value.
        halves = without_prologue(whole, frozen | widened)
    groups = group_calls(halves.program)
    coalesce_buffers(halves)
    advise_huge_pages(halves.program)
    return replace(halves.serialized(), call_groups=groups.sequences, group_of_call=groups.calls)
