"""How long the values exist that only a sequence's members see, and which take the place of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.ir.shape import shape_of
from hlo_dispatch.passes.backend_config import from_text
from hlo_dispatch.passes.call_groups.buffer_assignment import Life
from hlo_dispatch.vendor import registry

_LAYOUT = ("type", "dims", "strides", "offset", "elements")


def lives(
    group: Sequence[InstructionProto],
    inside: Sequence[InstructionProto],
    origin: Mapping[int, int],
    added_to: Mapping[int, int],
) -> list[Life]:
    """Those of what `inside` writes, in that order.

    Args:
        group: a sequence's members, in order.
        inside: those whose results nobody else reads, in order.
        origin: value → the member that makes it.
        added_to: member → the one whose result it adds its own to, for the last time.
    """
    step_of = {member.id: step for step, member in enumerate(group)}
    last = dict(step_of)
    for step, member in enumerate(group):
        for operand in member.operand_ids[:]:
            maker = origin.get(operand)
            if maker in last:
                last[maker] = step
    number_of = {member.id: number for number, member in enumerate(inside)}
    overwriting = {kernel.target for kernel in registry.kernels().values() if kernel.may_write_over_source}
    found: list[Life] = []
    for member in inside:
        over = number_of[added_to[member.id]] if member.id in added_to else None
        if member.custom_call_target in overwriting and _reads_as_it_writes(member):
            first, *others = (origin.get(operand) for operand in member.operand_ids[:])
            if first in number_of and first not in others and last[first] == step_of[member.id]:
                over = number_of[first]
        size = shape_of(member.shape.tuple_shapes[0]).bytes
        found.append(Life(size, step_of[member.id], last[member.id], over))
    return found


def _reads_as_it_writes(member: InstructionProto) -> bool:
    """Whether its source and its result have one layout."""
    attributes = from_text(member.backend_config.decode())
    return all(attributes.get(f"src_{what}") == attributes.get(f"dst_{what}") for what in _LAYOUT)
