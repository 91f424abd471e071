"""Module indexes: computations that control flow reaches, fresh names and ids."""

from __future__ import annotations

import pytest

from hlo_dispatch.errors import ModuleError
from hlo_dispatch.ir.editor import Editor, commit
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.submessages import submessages
from matching import parsed

LOOP = """
condition { s.1 = (s32[], f32[2]{0}) parameter(0)
  ROOT stop = pred[] constant(false) }
body { ROOT s.2 = (s32[], f32[2]{0}) parameter(0) }
ENTRY main { s = (s32[], f32[2]{0}) parameter(0)
  ROOT while = (s32[], f32[2]{0}) while(s), condition=condition, body=body }
"""
BRANCHES = """
yes { ROOT a = f32[2]{0} parameter(0) }
no { b = f32[2]{0} parameter(0)
  ROOT negate = f32[2]{0} negate(b) }
ENTRY main { which = pred[] parameter(0)
  x = f32[2]{0} parameter(1)
  ROOT chosen = f32[2]{0} conditional(which, x, x), true_computation=yes, false_computation=no }
"""
# `reduce`, `sort` and fusions call what is part of them, no program of its own.
NO_CONTROL_FLOW = """
add { l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT sum = f32[] add(l, r) }
fused { p = f32[2]{0} parameter(0)
  ROOT negate = f32[2]{0} negate(p) }
ENTRY main { x = f32[2]{0} parameter(0)
  zero = f32[] constant(0)
  fusion = f32[2]{0} fusion(x), kind=kLoop, calls=fused
  ROOT reduce = f32[] reduce(fusion, zero), dimensions={0}, to_apply=add }
"""
# %outer is a small call, so %inner runs inside it; %inner is also called plainly.
SMALL = 'frontend_attributes={xla_cpu_small_call="true"}'
CALLS = """
inner { ROOT a = f32[2]{0} parameter(0) }
outer { b = f32[2]{0} parameter(0)
  ROOT nested = f32[2]{0} call(b), to_apply=inner }
plain { ROOT c = f32[2]{0} parameter(0) }
ENTRY main { x = f32[2]{0} parameter(0)
  first = f32[2]{0} call(x), to_apply=ONE_WAY
  second = f32[2]{0} call(first), to_apply=plain
  ROOT third = f32[2]{0} call(second), to_apply=OTHER_WAY }
"""
PLAINLY_FIRST = CALLS.replace("ONE_WAY", "inner").replace("OTHER_WAY", f"outer, {SMALL}")
PLAINLY_LAST = CALLS.replace("ONE_WAY", f"outer, {SMALL}").replace("OTHER_WAY", "inner")
MARKED_FALSE = PLAINLY_LAST.replace('"true"', '"false"')


def programs(text: str) -> dict[str, bool]:
    """Name → small, of every computation that is a program of its own."""
    return {computation.name: small for computation, small in parsed(text).control_flow_computations()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOOP, {"condition": False, "body": False, "main": False}),
        (BRANCHES, {"yes": False, "no": False, "main": False}),
        (NO_CONTROL_FLOW, {"main": False}),
        (PLAINLY_FIRST, {"inner": True, "outer": True, "plain": False, "main": False}),
        (PLAINLY_LAST, {"inner": True, "outer": True, "plain": False, "main": False}),
        (MARKED_FALSE, {"inner": False, "outer": False, "plain": False, "main": False}),
    ],
    ids=["while", "conditional", "no control flow", "plainly, then small", "small, then plainly", "marked false"],
)
def test_control_flow_computations(text: str, expected: dict) -> None:
    assert programs(text) == expected


def test_they_come_in_the_order_of_the_module() -> None:
    module = parsed(LOOP)
    listed = [computation.id for computation, _ in module.control_flow_computations()]
    assert listed == [computation.id for computation in module.proto.computations]


def test_names() -> None:
    module = parsed(LOOP)
    assert module.name == "written"
    assert module.entry.name == "main"


def test_fresh_names_are_nobodys() -> None:
    module = parsed(LOOP)
    # Instructions and computations both own names: XLA makes them unique together.
    assert [module.fresh_name("s") for _ in range(3)] == ["s.3", "s.4", "s.5"]
    assert module.fresh_name("body") == "body.1"
    assert [module.fresh_name("new") for _ in range(2)] == ["new", "new.1"]
    assert module.fresh_name("new.1") == "new.1.1"


def test_fresh_computation_ids_are_nobodys() -> None:
    module = parsed(LOOP)
    taken = set(module.computations)
    fresh = [module.fresh_computation_id() for _ in range(3)]
    assert len({*fresh, *taken}) == 3 + len(taken)


def test_an_entry_that_is_not_there() -> None:
    module = parsed(LOOP)
    module.proto.entry_computation_id = 999
    with pytest.raises(ModuleError, match=r"it has no entry computation$"):
        Module.from_bytes(module.to_bytes())


@pytest.mark.parametrize("text", [LOOP, BRANCHES, NO_CONTROL_FLOW, PLAINLY_FIRST])
def test_opcodes_of_bytes_and_of_messages(text: str) -> None:
    module = parsed(text)
    expected = {i.opcode for computation in module.proto.computations for i in computation.instructions}
    assert module.opcodes == module.copy().opcodes == expected
    assert module.fresh_name("main") == module.copy().fresh_name("main") == "main.1"


def test_a_new_opcode_is_known_when_an_edit_is_committed() -> None:
    module = parsed(BRANCHES)
    assert "copy" not in module.opcodes
    editor = Editor(module, module.entry)
    editor.last().make("copy", module.entry.instructions[1].shape, module.entry.instructions[1].id)
    commit(module, [editor])
    assert "copy" in module.opcodes


def test_opcodes_of_a_computation_are_those_after_an_edit() -> None:
    module = parsed(BRANCHES)
    others = [identifier for identifier in module.computations if identifier != module.entry.id]
    before = [module.opcodes_of(identifier) for identifier in others]
    assert "copy" not in module.opcodes_of(module.entry.id)
    editor = Editor(module, module.entry)
    editor.last().make("copy", module.entry.instructions[1].shape, module.entry.instructions[1].id)
    commit(module, [editor])
    assert module.opcodes_of(module.entry.id) == {instruction.opcode for instruction in module.entry.instructions}
    assert [module.opcodes_of(identifier) for identifier in others if identifier in module.computations] == before


@pytest.mark.parametrize("text", [LOOP, BRANCHES, NO_CONTROL_FLOW])
def test_a_computation_of_bytes_is_a_part_of_them(text: str) -> None:
    module = Module.from_bytes(parsed(text).to_bytes(), commits_edits=True)
    expected = {c.id: c.SerializeToString() for c in module.proto.computations}
    assert {c.id: module.message(c) for c in module.proto.computations} == expected


def test_a_changed_computation_is_serialized_as_it_is_now() -> None:
    module = Module.from_bytes(parsed(NO_CONTROL_FLOW).to_bytes(), commits_edits=True)
    before = module.message(module.entry)
    editor = Editor(module, module.entry)
    editor.mutable(module.entry.root_id).name = "another"
    commit(module, [editor])
    assert module.message(module.entry) == module.entry.SerializeToString() != before


def test_parts_of_a_message_are_found_among_fields_of_every_wire_type() -> None:
    message = b"\x08\x96\x01" + b"\x1a\x02ab" + b"\x11" + bytes(8) + b"\x1d" + bytes(4) + b"\x12\x01x" + b"\x1a\x00"
    assert submessages(message, 3) == [b"ab", b""]
    assert submessages(b"\x1a" + b"\xc8\x01" + bytes(200), 3) == [bytes(200)]
    assert submessages(b"\x0b\x1a\x01x", 3) == []


@pytest.mark.parametrize("text", [LOOP, BRANCHES, NO_CONTROL_FLOW])
def test_opcodes_are_known_by_computation_before_one_is_asked_for(text: str) -> None:
    parsed_module = parsed(text)
    module = Module.from_bytes(parsed_module.to_bytes(), commits_edits=True)
    assert module.opcodes == parsed_module.opcodes == {i.opcode for i in module.instructions}
    for identifier, computation in module.computations.items():
        assert module.opcodes_of(identifier) == {i.opcode for i in computation.instructions}
