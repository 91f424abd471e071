"""Legality of call groups: on random graphs every group is convex."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from hlo_dispatch.ir.editor import Editor
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.schema import ComputationProto, ModuleProto
from hlo_dispatch.passes.call_groups.legality import GroupFinder

KERNELS = {"kernel": "holder", "other": "other holder"}


def finder_of(computation: ComputationProto) -> GroupFinder:
    return GroupFinder(Editor(Module(ModuleProto()), computation), KERNELS)


def add(computation: ComputationProto, opcode: str, operands: list[int], **fields) -> int:
    identifier = len(computation.instructions) + 1
    proto = computation.instructions.add(id=identifier, name=f"i{identifier}", opcode=opcode, **fields)
    proto.operand_ids.extend(operands)
    return identifier


@st.composite
def computations(draw: st.DrawFn) -> ComputationProto:
    """Random computations of kernel calls, other instructions and bitcasts."""
    made = ComputationProto(id=1, name="main")
    values = [add(made, "parameter", [], parameter_number=number) for number in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, 14))):
        operands = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        kind = draw(st.sampled_from(["kernel", "kernel", "kernel", "other", "add", "bitcast"]))
        if kind in KERNELS:
            call = add(made, "custom-call", operands, custom_call_target=kind)
            waits_for = [value - 1 for value in values[-3:] if value > 1]
            if waits_for and draw(st.integers(0, 3)) == 0:
                made.instructions[-1].control_predecessor_ids.append(draw(st.sampled_from(waits_for)))
            values.append(add(made, "get-tuple-element", [call], tuple_index=0))
            if draw(st.integers(0, 9)) == 0:
                waiting = add(made, "add", [values[0]])
                made.instructions[-1].control_predecessor_ids.append(draw(st.sampled_from([call, values[-2], call])))
                values.append(waiting)
        else:
            values.append(add(made, kind, operands[: 1 if kind == "bitcast" else 3]))
    made.root_id = values[-1]
    return made


@given(computations())
def test_groups_do_not_wait_for_themselves(computation: ComputationProto) -> None:
    finder = finder_of(computation)
    found = finder.groups()
    group_of = {member.id: -number for number, group in enumerate(found, 1) for member in group}
    # A member's get-tuple-elements and bitcasts belong to its group.
    place = {i.id: group_of.get(finder.producer_of.get(i.id, i.id), i.id) for i in computation.instructions}
    whole = nx.DiGraph()
    for instruction in computation.instructions:
        whole.add_node(place[instruction.id])
        for before in (*instruction.operand_ids, *instruction.control_predecessor_ids):
            if place[before] != place[instruction.id]:
                whole.add_edge(place[before], place[instruction.id])
    assert nx.is_directed_acyclic_graph(whole)
    for group in found:
        assert len(group) > 1
        assert len({member.custom_call_target for member in group}) == 1


def chain(*between: str) -> ComputationProto:
    """A chain of kernel calls with these opcodes between them."""
    made = ComputationProto(id=1, name="main")
    value = add(made, "parameter", [], parameter_number=0)
    for opcode in ("", *between):
        if opcode:
            value = add(made, opcode, [value])
        call = add(made, "custom-call", [value], custom_call_target="kernel")
        value = add(made, "get-tuple-element", [call], tuple_index=0)
    made.root_id = add(made, "negate", [value])
    return made


def sizes(computation: ComputationProto) -> list[int]:
    return [len(group) for group in finder_of(computation).groups()]


def test_renamings_are_nothing_between() -> None:
    assert sizes(chain("bitcast", "bitcast")) == [3]


def test_work_between_ends_a_group() -> None:
    assert sizes(chain("bitcast", "negate", "bitcast")) == [2, 2]


def test_one_call_is_no_group() -> None:
    assert sizes(chain()) == []
    assert sizes(chain("negate")) == []


def test_readers_of_one_value_are_near_in_time() -> None:
    made = chain("negate")
    read = made.instructions[3].id  # the negated one
    for _ in range(2):
        call = add(made, "custom-call", [read], custom_call_target="kernel")
        made.root_id = add(made, "get-tuple-element", [call], tuple_index=0)
    assert sizes(made) == [3]


def test_calls_on_parameters_alone_are_not_near() -> None:
    made = ComputationProto(id=1, name="main")
    value = add(made, "parameter", [], parameter_number=0)
    for _ in range(3):
        call = add(made, "custom-call", [value], custom_call_target="kernel")
        made.root_id = add(made, "get-tuple-element", [call], tuple_index=0)
    assert sizes(made) == []


def test_calls_that_wait_for_each_other_are_one_group() -> None:
    """Apart, the first group would wait for the second, and the second for the first."""
    made = ComputationProto(id=1, name="main")
    values = [add(made, "parameter", [], parameter_number=number) for number in range(2)]
    calls: dict[str, int] = {}
    for name, value in (("a", 0), ("b", 1), ("c", 1), ("d", 0)):
        calls[name] = add(made, "custom-call", [values[value]], custom_call_target="kernel")
        waits_for = {"b": "a", "d": "c"}.get(name)
        if waits_for is not None:
            made.instructions[-1].control_predecessor_ids.append(calls[waits_for])
        values[value] = add(made, "get-tuple-element", [calls[name]], tuple_index=0)
    made.root_id = add(made, "add", values)
    assert sizes(made) == [4]


def test_what_waits_for_a_member_waits_for_its_group() -> None:
    made = chain("bitcast", "negate")
    first = next(i.id for i in made.instructions if i.opcode == "custom-call")
    made.instructions[-1].control_predecessor_ids.append(first)
    assert sizes(made) == [2]


def test_a_renaming_that_waits_stands_between() -> None:
    made = chain("bitcast")
    first = next(i.id for i in made.instructions if i.opcode == "custom-call")
    next(i for i in made.instructions if i.opcode == "bitcast").control_predecessor_ids.append(first)
    assert sizes(made) == []
