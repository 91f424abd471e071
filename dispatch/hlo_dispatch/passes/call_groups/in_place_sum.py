"""In-place sum post-ops: a call group's member adds its result to a dead residual instead of writing a new buffer.

A large residual and a separate result evict each other from the caches; an in-place sum has one buffer for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_dispatch.errors import Refusal
from hlo_dispatch.ir.schema import InstructionProto
from hlo_dispatch.passes.backend_config import from_text, to_text
from hlo_dispatch.vendor import kernels, registry


@dataclass(frozen=True)
class InPlaceSum:
    """A member that adds its result to a residual in place."""

    operand: int
    """Number of the residual among its operands; the rewritten call no longer has it as an operand."""
    producer: int
    """Id of the member that produces the residual."""
    attributes: str
    """The rewritten attributes as text, without the residual's value number in the call group."""


def in_place_sums(
    group: Sequence[InstructionProto], intermediates: Sequence[InstructionProto], producer_of: Mapping[int, int]
) -> dict[int, InPlaceSum]:
    """Member → its in-place sum, where the residual is dead afterwards and the kernel keeps its implementation.

    Args:
        group: the members of a call group, in order.
        intermediates: those whose results only members read.
        producer_of: value → the member that produces it.
    """
    intermediate_ids = {member.id for member in intermediates}
    last_reader = {producer_of.get(operand): member.id for member in group for operand in member.operand_ids[:]}
    names = {kernel.target: name for name, kernel in registry.kernels().items()}
    found: dict[int, InPlaceSum] = {}
    for member in intermediates:
        producers = [producer_of.get(operand) for operand in member.operand_ids[:]]
        if not any(
            producer_id in intermediate_ids and last_reader[producer_id] == member.id for producer_id in producers
        ):
            continue
        attributes = from_text(member.backend_config.decode())
        for number, operand in _residual_adds(attributes):
            producer_id = producers[operand]
            if (
                producer_id is None
                or producer_id not in intermediate_ids
                or last_reader[producer_id] != member.id
                or producers.count(producer_id) > 1
            ):
                continue
            changed = {**attributes, f"post_op_{number}": {"kind": "sum"}}
            if _is_same_implementation(names[member.custom_call_target], attributes, changed):
                found[member.id] = InPlaceSum(operand, producer_id, to_text(changed))
                break
    return found


def _residual_adds(attributes: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The post-ops that add an array with the result's type and layout: (post-op number, operand number)."""
    if "weights_dims" not in attributes:
        return
    operand = 2 + ("bias_type" in attributes)
    number = 0
    while (post_op := attributes.get(f"post_op_{number}")) is not None:
        if post_op["kind"] == "binary":
            alike = all(post_op.get(what) == attributes.get(f"dst_{what}") for what in ("type", "dims", "strides"))
            if post_op["algorithm"] == "add" and alike:
                yield number, operand
            operand += 1
        number += 1


def _is_same_implementation(name: str, attributes: Mapping[str, Any], changed: Mapping[str, Any]) -> bool:
    before, now = kernels.plan(name, attributes), kernels.plan(name, {**changed, "accumulated": 0})
    if isinstance(before, Refusal) or isinstance(now, Refusal):
        return False
    return now.implementation == before.implementation and now.scratch_bytes <= attributes["scratch"]
