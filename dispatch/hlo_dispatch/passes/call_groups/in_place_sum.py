"""In-place sum post-ops: a call group's member adds its result to a dead residual instead of writing a new buffer.

A large residual and a separate result evict each other from the caches; an in-place sum has one buffer for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.attributes import Attributes
from hlo_dispatch.ir.kernel_call import KernelCall, operand_roles
from hlo_dispatch.vendor import kernels, registry


@dataclass(frozen=True)
class InPlaceSum:
    """A member that adds its result to a residual in place."""

    operand: int
    """Number of the residual among its operands; the rewritten call no longer has it as an operand."""
    producer: int
    """Id of the member that produces the residual."""
    attributes: Attributes
    """The rewritten attributes, without the residual's value number in the call group."""


def in_place_sums(
    group: Mapping[int, KernelCall], intermediates: Sequence[int], producer_of: Mapping[int, int]
) -> dict[int, InPlaceSum]:
    """Member → its in-place sum, where the residual is dead afterwards and the kernel keeps its implementation.

    Args:
        group: the members of a call group by id, in order.
        intermediates: ids of those whose results only members read.
        producer_of: value → the member that produces it.
    """
    values = set(intermediates)
    last_reader = {producer_of.get(operand): member for member, call in group.items() for operand in call.operands}
    names = {kernel.target: name for name, kernel in registry.kernels().items()}
    found: dict[int, InPlaceSum] = {}
    for member in intermediates:
        call = group[member]
        producers = [producer_of.get(operand, -1) for operand in call.operands]
        dead = {p for p in producers if p in values and last_reader[p] == member and producers.count(p) == 1}
        for number, operand in _residual_adds(call.attributes) if dead else ():
            if (producer := producers[operand]) in dead:
                changed = {**call.attributes.mapping, f"post_op_{number}": {"kind": "sum"}}
                if _is_same_implementation(names[call.target], call.attributes, changed):
                    found[member] = InPlaceSum(operand, producer, Attributes(changed))
                    break
    return found


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
