"""Residuals that a sequence's member adds its result to where they lie, instead of reading them and writing elsewhere.

A large residual and a result of its own push each other out of the caches; a sum in place has one place for both.
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
class Accumulation:
    """What becomes of a member."""

    operand: int
    """Which of its operands is the residual, and is none of its operands any more."""
    value: int
    """The member that makes it."""
    attributes: str
    """Its own, as text, but for the value's number in the sequence."""


def accumulations(
    group: Sequence[InstructionProto], inside: Sequence[InstructionProto], origin: Mapping[int, int]
) -> dict[int, Accumulation]:
    """Member → how it adds to a residual that only it still reads, where its kernel does so by the same code.

    Args:
        group: a sequence's members, in order.
        inside: those whose results nobody else reads.
        origin: value → the member that makes it.
    """
    makers = {member.id for member in inside}
    last = {origin.get(operand): member.id for member in group for operand in member.operand_ids[:]}
    names = {kernel.target: name for name, kernel in registry.kernels().items()}
    found: dict[int, Accumulation] = {}
    for member in inside:
        given = [origin.get(operand) for operand in member.operand_ids[:]]
        if not any(maker in makers and last[maker] == member.id for maker in given):
            continue
        attributes = from_text(member.backend_config.decode())
        for number, operand in _residuals(attributes):
            maker = given[operand]
            if maker is None or maker not in makers or last[maker] != member.id or given.count(maker) > 1:
                continue
            changed = {**attributes, f"post_op_{number}": {"kind": "sum"}}
            if _is_same_code(names[member.custom_call_target], attributes, changed):
                found[member.id] = Accumulation(operand, maker, to_text(changed))
                break
    return found


def _residuals(attributes: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """The post-ops that add an array like the result, each with its operand's number."""
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


def _is_same_code(name: str, attributes: Mapping[str, Any], changed: Mapping[str, Any]) -> bool:
    before, now = kernels.plan(name, attributes), kernels.plan(name, {**changed, "accumulated": 0})
    if isinstance(before, Refusal) or isinstance(now, Refusal):
        return False
    return now.implementation == before.implementation and now.scratch_bytes <= attributes["scratch"]
