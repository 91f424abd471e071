"""Topological order of edited computations."""

from __future__ import annotations

import pytest

from hlo_dispatch.ir.instruction_order import in_order
from hlo_dispatch.ir.module import Module
from matching import EDITED, parsed


def names(protos) -> list[str]:
    return [proto.name for proto in protos]


def ordered(module: Module, moved: dict[str, int]) -> list[str]:
    """The entry in order, with some instructions said to stand elsewhere."""
    protos = {proto.id: proto for proto in module.entry.instructions}
    positions = {identifier: position for position, identifier in enumerate(protos)}
    positions |= {proto.id: moved[proto.name] for proto in protos.values() if proto.name in moved}
    return names(in_order(protos, sorted(protos, key=positions.__getitem__)))


def test_what_is_in_order_stays() -> None:
    module = parsed(EDITED)
    assert ordered(module, {}) == names(module.entry.instructions)


def test_an_operand_comes_before_its_user_wherever_it_was_to_stand() -> None:
    module = parsed(EDITED)
    order = ordered(module, {"read": 99, "dropped": 98})
    assert order.index("read") < order.index("t")
    assert order.index("dropped") < order.index("late")
    assert set(order) == set(names(module.entry.instructions))


def test_a_cycle_is_a_mistake_of_ours() -> None:
    module = parsed(EDITED)
    first = next(proto for proto in module.entry.instructions if proto.name == "dropped")
    first.control_predecessor_ids.append(next(p.id for p in module.entry.instructions if p.name == "late"))
    with pytest.raises(AssertionError, match="has a cycle"):
        ordered(module, {})
