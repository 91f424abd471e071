"""Buffer aliasing of loops, branches and donated inputs, and the instructions that write in place."""

from __future__ import annotations

import re

import pytest

from hlo_dispatch.analysis.buffer_aliasing import BufferAliasing
from hlo_dispatch.analysis.in_place_updates import writes_in_place, written_operands
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.module import Module
from matching import parsed

F = "f32[4]{0}"

LOOP = f"""
inside {{ p = {F} parameter(0)
  piece = f32[1]{{0}} parameter(1)
  at = s32[] parameter(2)
  ROOT update = {F} dynamic-update-slice(p, piece, at) }}
outside {{ p = {F} parameter(0)
  ROOT negate = {F} negate(p) }}
go_on {{ t.1 = (s32[], {F}) parameter(0)
  ROOT yes = pred[] constant(true) }}
turn {{ ROOT t.2 = (s32[], {F}) parameter(0) }}
called {{ ROOT c = {F} parameter(0) }}
ENTRY main {{ x = {F} parameter(0)
  y = f32[1]{{0}} parameter(1)
  i = s32[] parameter(2)
  writes = {F} fusion(x, y, i), kind=kLoop, calls=inside
  reads = {F} fusion(writes), kind=kLoop, calls=outside
  call = {F} call(reads), to_apply=called
  state = (s32[], {F}) tuple(i, call)
  while = (s32[], {F}) while(state), condition=go_on, body=turn
  result = {F} get-tuple-element(while), index=1
  aliased = {F} custom-call(result), custom_call_target="f", output_to_operand_aliasing={{{{}}: (0, {{}})}}
  ROOT plain = {F} custom-call(aliased), custom_call_target="g" }}
"""


def computation(module: Module, name: str):
    return next(proto for proto in module.proto.computations if proto.name == name)


def test_what_writes_in_place() -> None:
    module = parsed(LOOP)
    written = [proto.name for proto in module.entry.instructions if writes_in_place(module, proto)]
    assert written == ["writes", "call", "while", "aliased"]


def test_a_fusion_writes_over_what_it_updates_and_over_nothing_else() -> None:
    module = parsed(LOOP)
    (writes,) = [proto for proto in module.entry.instructions if proto.name == "writes"]
    assert len(writes.operand_ids) == 3
    assert written_operands(module, writes) == {0}


def test_a_bodys_state_shares_with_its_result() -> None:
    module = parsed(LOOP)
    assert BufferAliasing(module).pairs(computation(module, "turn")) == [((0, 0), 0), ((0, 1), 1)]
    assert BufferAliasing(module).pairs(computation(module, "called")) == []


def test_a_single_array_that_a_loop_carries_shares_with_its_result() -> None:
    module = parsed(f"""
    go_on {{ p.1 = {F} parameter(0)
      ROOT yes = pred[] constant(true) }}
    turn {{ p.2 = {F} parameter(0)
      ROOT n = {F} negate(p.2) }}
    ENTRY main {{ x = {F} parameter(0)
      ROOT while = {F} while(x), condition=go_on, body=turn }}
    """)
    aliasing = BufferAliasing(module)
    assert aliasing.pairs(computation(module, "turn")) == [((0,), None)]
    assert aliasing.pairs(computation(module, "go_on")) == []


def test_a_conditions_state_shares_with_nothing() -> None:
    module = parsed(LOOP)
    assert BufferAliasing(module).pairs(computation(module, "go_on")) == []


BRANCHES = f"""
as_it_is {{ ROOT a = ({F}, {F}) parameter(0) }}
other {{ b = ({F}, {F}) parameter(0)
  first = {F} get-tuple-element(b), index=0
  second = {F} get-tuple-element(b), index=1
  sum = {F} add(first, second)
  product = {F} multiply(first, second)
  ROOT both = ({F}, {F}) tuple(sum, product) }}
go_on {{ t.1 = (pred[], {F}, {F}) parameter(0)
  ROOT yes = pred[] get-tuple-element(t.1), index=0 }}
turn {{ t.2 = (pred[], {F}, {F}) parameter(0)
  again = pred[] get-tuple-element(t.2), index=0
  x = {F} get-tuple-element(t.2), index=1
  y = {F} get-tuple-element(t.2), index=2
  one = ({F}, {F}) tuple(x, y)
  two = ({F}, {F}) tuple(OPERANDS)
  chosen = ({F}, {F}) conditional(again, one, two), true_computation=FIRST, false_computation=other
  p = {F} get-tuple-element(chosen), index=0
  q = {F} get-tuple-element(chosen), index=1
  ROOT state = (pred[], {F}, {F}) tuple(again, RESULTS) }}
ENTRY main {{ s = (pred[], {F}, {F}) parameter(0)
  ROOT w = (pred[], {F}, {F}) while(s), condition=go_on, body=turn }}
"""


@pytest.mark.parametrize(
    ("first", "operands", "results", "pairs"),
    [
        # The loop's state is the branch's operand, and its result the next state.
        ("another", "x, y", "p, q", [((0, 0), 0), ((0, 1), 1)]),
        ("another", "y, x", "p, q", [((0, 0), 1), ((0, 1), 0)]),
        ("another", "x, y", "x, y", []),
        ("another", "x, x", "p, x", [((0, 0), 0), ((0, 1), 0)]),
        # The branch beside it returns its operand as it is, where the result lies, too.
        ("as_it_is", "x, y", "x, y", [((0, 0), 0), ((0, 1), 1)]),
    ],
)
def test_a_branchs_operand_may_share_with_its_result(first: str, operands: str, results: str, pairs: list) -> None:
    text = BRANCHES.replace("OPERANDS", operands).replace("RESULTS", results).replace("FIRST", first)
    other = BRANCHES[BRANCHES.index("other {") : BRANCHES.index("go_on {")]
    another = other.replace("other", "another")
    another = re.sub(r"\b(b|first|second|sum|product|both)\b", r"\1.2", another)
    module = parsed(another + text if first == "another" else text)
    assert sorted(BufferAliasing(module).pairs(computation(module, "other"))) == pairs
    assert BufferAliasing(module).certain_pairs(computation(module, "other")) == []


@pytest.mark.parametrize(
    ("alias", "result", "pairs"),
    [
        ("{}: (1, {}, may-alias)", f"ROOT r = {F} add(x, y)", [((1,), None)]),
        ("{0}: (0, {}, must-alias), {1}: (1, {}, may-alias)", "tuple", [((0,), 0), ((1,), 1)]),
        ("", "tuple", []),
    ],
)
def test_donated_inputs_share_with_outputs(alias: str, result: str, pairs: list) -> None:
    if result == "tuple":
        result = f"ROOT r = ({F}, {F}) tuple(x, y)"
    text = f"HloModule donated, input_output_alias={{ {alias} }}\nENTRY main {{ x = {F} parameter(0)\n"
    module = Module.from_bytes(hlo_text.from_text(f"{text} y = {F} parameter(1)\n {result} }}"))
    assert BufferAliasing(module).pairs(module.entry) == pairs
