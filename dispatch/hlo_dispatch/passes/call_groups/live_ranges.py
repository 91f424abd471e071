"""Live-range analysis of a call group's intermediate values, and which of them can reuse an operand's buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.passes.backend_config import from_text
from hlo_dispatch.passes.call_groups.buffer_assignment import LiveRange
from hlo_dispatch.vendor import registry

_LAYOUT = ("type", "dims", "strides", "offset", "elements")


def live_ranges(
    group: Sequence[InstructionProto],
    intermediates: Sequence[InstructionProto],
    producer_of: Mapping[int, int],
    sum_operand_of: Mapping[int, int],
) -> list[LiveRange]:
    """Live ranges of the intermediate values.

    Args:
        group: the members of a call group, in order.
        intermediates: those whose results only members read, in order.
        producer_of: value → the member that produces it.
        sum_operand_of: member with an in-place sum → the member whose result it adds to.
    """
    step_of = {member.id: step for step, member in enumerate(group)}
    last = dict(step_of)
    for step, member in enumerate(group):
        for operand in member.operand_ids[:]:
            producer = producer_of.get(operand)
            if producer in last:
                last[producer] = step
    value_number = {member.id: number for number, member in enumerate(intermediates)}
    in_place_targets = {kernel.target for kernel in registry.kernels().values() if kernel.may_write_over_source}
    found: list[LiveRange] = []
    for member in intermediates:
        reuses = value_number[sum_operand_of[member.id]] if member.id in sum_operand_of else None
        if member.custom_call_target in in_place_targets and _has_one_layout(member):
            first, *others = (producer_of.get(operand) for operand in member.operand_ids[:])
            if first in value_number and first not in others and last[first] == step_of[member.id]:
                reuses = value_number[first]
        size = shape_of(member.shape.tuple_shapes[0]).bytes
        found.append(LiveRange(size, step_of[member.id], last[member.id], reuses))
    return found


def _has_one_layout(member: InstructionProto) -> bool:
    """Whether its source and its result have the same layout."""
    attributes = from_text(member.backend_config.decode())
    return all(attributes.get(f"src_{what}") == attributes.get(f"dst_{what}") for what in _LAYOUT)
