"""Buffer assignment of call groups: intermediate values with disjoint live ranges share memory, and some are written
over an operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from hlo_dispatch.analysis.buffer_assignment import assign_buffers
from hlo_dispatch.analysis.live_range import LiveRange
from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.call_groups.call_group import CallGroup, rewrite_groups
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.vendor import registry

_LAYOUT = ("type", "dims", "strides", "offset", "elements")


def share_buffers(module: Module, context: PassContext) -> set[int]:
    """Assign the intermediate values of all call groups to buffers."""
    targets = {kernel.target for kernel in registry.kernels().values() if kernel.may_write_over_source}

    def with_shared_buffers(group: CallGroup) -> CallGroup:
        buffers = assign_buffers(*_live_ranges(group, targets))
        return group if buffers == group.buffers else replace(group, buffers=buffers)

    return rewrite_groups(module, context.call_groups, with_shared_buffers)


def _live_ranges(group: CallGroup, in_place_targets: AbstractSet[str]) -> tuple[list[LiveRange], dict[int, int]]:
    """Live ranges of the intermediate values, in steps, and which of them reuse another one's buffer in place.

    Args:
        in_place_targets: targets of the kernels that may write over their source.

    Returns:
        the live ranges, and number of an intermediate value, from 0, → number of the one whose buffer it reuses.
    """
    first = group.first_intermediate
    last = {value: step for step, member in enumerate(group.members) for value in member.reads}
    found: list[LiveRange] = []
    reused: dict[int, int] = {}
    for step, member in enumerate(group.members):
        if member.output < first:
            continue
        if member.accumulated is not None:
            reused[len(found)] = member.accumulated - first
        elif member.call.target in in_place_targets and _has_one_layout(member.call.attributes):
            source, *others = member.reads
            if source >= first and source not in others and last[source] == step:
                reused[len(found)] = source - first
        found.append(LiveRange(member.call.results[0].bytes, step, last.get(member.output, step)))
    return found, reused


def _has_one_layout(attributes: Mapping[str, Any]) -> bool:
    """Whether the source and the result have the same layout."""
    return all(attributes.get(f"src_{what}") == attributes.get(f"dst_{what}") for what in _LAYOUT)
