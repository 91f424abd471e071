"""Input products of loops in small calls: what waits for the call, and inputs of packed integers."""

from __future__ import annotations

import pytest

import hlo_dispatch
from hlo_dispatch.ir.module import Module
from matching import instruction, serialized

TRIPS = (
    '"known_trip_count":{"n":"16"},"known_init_step":{"init":"0","step":"1"},'
    '"known_induction_variable":{"tuple_index":"0"}'
)
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def loop(kind: str, *, is_waited_for: bool = False) -> str:
    """A small call of a loop that multiplies rows of a stack of this element type with weights of 2 MB."""
    packed = ":E(4)" if kind == "s4" else ""
    stack, slice_, row = (
        f"{kind}[16,1,1024]{{2,1,0{packed}}}", f"{kind}[1,1,1024]{{2,1,0{packed}}}", f"{kind}[1,1024]{{1,0{packed}}}"
    )  # fmt: skip
    state = f"(s32[], f32[1,512]{{1,0}}, {stack}, f32[1024,512]{{1,0}})"
    converted = "x = f32[1,1024]{1,0} convert(stored)" if kind != "f32" else ""
    multiplied = "x" if converted else "stored"
    after = ", control-predecessors={call}" if is_waited_for else ""
    return f"""
body {{ p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  h = f32[1,512]{{1,0}} get-tuple-element(p), index=1
  xs = {stack} get-tuple-element(p), index=2
  w = f32[1024,512]{{1,0}} get-tuple-element(p), index=3
  zero = s32[] constant(0)
  slice = {slice_} dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={{1,1,1024}}
  stored = {row} bitcast(slice)
  {converted}
  product = f32[1,512]{{1,0}} dot({multiplied}, w), {DOT}
  sum = f32[1,512]{{1,0}} add(product, h)
  ROOT t = {state} tuple(next, sum, xs, w) }}
condition {{ q = {state} parameter(0)
  j = s32[] get-tuple-element(q), index=0
  trips = s32[] constant(16)
  ROOT less = pred[] compare(j, trips), direction=LT }}
small {{ s = {state} parameter(0)
  ROOT loop = {state} while(s), condition=condition, body=body, backend_config={{{TRIPS}}} }}
ENTRY main {{ h.0 = f32[1,512]{{1,0}} parameter(0)
  xs.0 = {stack} parameter(1)
  w.0 = f32[1024,512]{{1,0}} parameter(2)
  zero.0 = s32[] constant(0)
  i.0 = s32[] copy(zero.0)
  h.1 = f32[1,512]{{1,0}} copy(h.0)
  state = {state} tuple(i.0, h.1, xs.0, w.0)
  call = {state} call(state), to_apply=small, frontend_attributes={{xla_cpu_small_call="true"}}
  out = f32[1,512]{{1,0}} get-tuple-element(call), index=1
  other = f32[1,512]{{1,0}} add(h.0, h.0){after}
  ROOT r = (f32[1,512]{{1,0}}, f32[1,512]{{1,0}}) tuple(out, other) }}
"""


def rewritten(text: str) -> Module:
    result = hlo_dispatch.rewrite(serialized(text), policy="always")
    assert result.proto is not None
    return Module.from_bytes(result.proto)


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_what_waits_for_the_small_call_waits_for_the_loop(*, is_waited_for: bool) -> None:
    module = rewritten(loop("f32", is_waited_for=is_waited_for))
    (inlined,) = (i for i in module.entry.instructions if i.opcode == "while")
    waits = instruction(module, "other").control_predecessor_ids[:]
    assert waits == ([inlined.id] if is_waited_for else [])
    assert len(inlined.shape.tuple_shapes) == 5, "the products of all iterations"


def test_inputs_of_packed_integers_stay_in_the_loop() -> None:
    """Their bytes say nothing of how many a shape made anew would have."""
    result = hlo_dispatch.rewrite(serialized(loop("s4")), policy="always")
    shapes = [i.shape for i in Module.from_bytes(result.proto).instructions] if result.proto is not None else []
    assert not [shape for shape in shapes if shape.dimensions[:] == [16, 1024]]
