"""Live-range analysis of a call group's intermediate values, and which of them can reuse an operand's buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hlo_dispatch.analysis.live_range import LiveRange
from hlo_dispatch.ir.kernel_call import KernelCall
from hlo_dispatch.vendor import registry

_LAYOUT = ("type", "dims", "strides", "offset", "elements")


def live_ranges(
    group: Mapping[int, KernelCall],
    intermediates: Sequence[int],
    producer_of: Mapping[int, int],
    sum_operand_of: Mapping[int, int],
) -> tuple[list[LiveRange], dict[int, int]]:
    """Live ranges of the intermediate values, in steps, and which of them reuse another one's buffer in place.

    Args:
        group: the members of a call group by id, in order.
        intermediates: ids of those whose results only members read, in order.
        producer_of: value → the member that produces it.
        sum_operand_of: member with an in-place sum → the member whose result it adds to.

    Returns:
        the live ranges, and number of an intermediate value → number of the one whose buffer it reuses.
    """
    step_of = {member: step for step, member in enumerate(group)}
    last = dict(step_of)
    for step, call in enumerate(group.values()):
        for operand in call.operands:
            producer = producer_of.get(operand)
            if producer in last:
                last[producer] = step
    value_number = {member: number for number, member in enumerate(intermediates)}
    in_place_targets = {kernel.target for kernel in registry.kernels().values() if kernel.may_write_over_source}
    found: list[LiveRange] = []
    reused: dict[int, int] = {}
    for number, member in enumerate(intermediates):
        call = group[member]
        found.append(LiveRange(call.results[0].bytes, step_of[member], last[member]))
        if member in sum_operand_of:
            reused[number] = value_number[sum_operand_of[member]]
        if call.target in in_place_targets and _has_one_layout(call.attributes):
            first, *others = (producer_of.get(operand) for operand in call.operands)
            if first in value_number and first not in others and last[first] == step_of[member]:
                reused[number] = value_number[first]
    return found, reused


def _has_one_layout(attributes: Mapping[str, Any]) -> bool:
    """Whether the source and the result have the same layout."""
    return all(attributes.get(f"src_{what}") == attributes.get(f"dst_{what}") for what in _LAYOUT)
