"""In-place sums: a call group's member adds its result to a dead residual instead of writing a new buffer.

A large residual and a separate result evict each other from the caches; an in-place sum has one buffer for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from hlo_dispatch.analysis.buffer_assignment import BufferAssignment
from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.kernel_call import operand_roles
from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.call_groups.call_group import CallGroup, Member, rewrite_groups
from hlo_dispatch.passes.context import PassContext
from hlo_dispatch.vendor import kernels, registry


def sum_in_place(module: Module, context: PassContext) -> set[int]:
    """Turn residual adds of call groups into in-place sums."""
    names = {kernel.target: name for name, kernel in registry.kernels().items()} if context.call_groups else {}
    return rewrite_groups(module, context.call_groups, lambda group: _with_in_place_sums(group, names))


def _with_in_place_sums(group: CallGroup, names: Mapping[str, str]) -> CallGroup:
    """The group with an in-place sum wherever the residual is dead afterwards and the kernel keeps its implementation.

    Args:
        names: target → name of the kernel.
    """
    first = group.first_intermediate
    last_reader = {value: step for step, member in enumerate(group.members) for value in member.inputs}
    members, offsets = list(group.members), list(group.buffers.offsets)
    for step, member in enumerate(group.members):
        inputs = member.inputs if member.output >= first else ()
        dead = {value for value in inputs if value >= first and last_reader[value] == step and inputs.count(value) == 1}
        summed = _with_in_place_sum(member, dead, names) if dead else None
        if summed is not None and summed.accumulated is not None:
            members[step] = summed
            offsets[summed.output - first] = offsets[summed.accumulated - first]
    if all(member.accumulated is None for member in members):
        return group
    return replace(group, members=tuple(members), buffers=BufferAssignment(tuple(offsets), group.buffers.bytes))


def _with_in_place_sum(member: Member, dead: AbstractSet[int], names: Mapping[str, str]) -> Member | None:
    """The member with the first of its residual adds to a dead value in place; None: it has none."""
    attributes = member.call.attributes
    for number, operand in _residual_adds(attributes):
        residual = member.inputs[operand]
        changed = {**attributes.mapping, f"post_op_{number}": {"kind": "sum"}}
        if residual in dead and _is_same_implementation(names[member.call.target], attributes, changed):
            call = replace(member.call, attributes=Attributes(changed))
            inputs = (*member.inputs[:operand], *member.inputs[operand + 1 :])
            return replace(member, call=call, inputs=inputs, accumulated=residual)
    return None


def _residual_adds(attributes: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The post-ops that add an array with the result's type and layout: (post-op number, operand number)."""
    if "weights_dims" not in attributes:
        return
    for operand, role in enumerate(operand_roles(attributes)):
        post_op = attributes.get(role)
        if post_op is not None and post_op["algorithm"] == "add":
            if all(post_op.get(what) == attributes.get(f"dst_{what}") for what in ("type", "dims", "strides")):
                yield int(role.removeprefix("post_op_")), operand


def _is_same_implementation(name: str, attributes: Mapping[str, Any], changed: Mapping[str, Any]) -> bool:
    before, now = kernels.plan(name, attributes), kernels.plan(name, {**changed, "accumulated": 0})
    if isinstance(before, Refusal) or isinstance(now, Refusal):
        return False
    return now.implementation == before.implementation and now.scratch_bytes <= attributes["scratch"]
