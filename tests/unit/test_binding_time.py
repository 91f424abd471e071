"""Binding-time analysis: the static values of a module with frozen parameters."""

from __future__ import annotations

from hlo_dispatch.analysis.binding_time import (
    is_pure,
    static_by_computation,
    static_inputs_by_computation,
    static_values,
    weights_rule,
)
from hlo_dispatch.analysis.flat_graph import FlatGraph
from matching import doubling_fusions, instruction, parsed

SCAN = """
body {{ s = (f32[4,8]{{1,0}}, f32[8,8]{{1,0}}, f32[3,8,8]{{2,1,0}}, s32[]) parameter(0)
  x = f32[4,8]{{1,0}} get-tuple-element(s), index=0
  w = f32[8,8]{{1,0}} get-tuple-element(s), index=1
  stack = f32[3,8,8]{{2,1,0}} get-tuple-element(s), index=2
  i = s32[] get-tuple-element(s), index=3
  zero = s32[] constant(0)
  piece = f32[1,8,8]{{2,1,0}} dynamic-slice(stack, i, zero, zero), dynamic_slice_sizes={{1,8,8}}
  slice = f32[8,8]{{1,0}} bitcast(piece)
  doubled = f32[8,8]{{1,0}} add(w, w)
  first = f32[4,8]{{1,0}} dot(x, doubled), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y = f32[4,8]{{1,0}} dot(first, slice), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {other}
  ROOT t = (f32[4,8]{{1,0}}, f32[8,8]{{1,0}}, f32[3,8,8]{{2,1,0}}, s32[]) tuple({result}, w, stack, i) }}
condition {{ s = (f32[4,8]{{1,0}}, f32[8,8]{{1,0}}, f32[3,8,8]{{2,1,0}}, s32[]) parameter(0)
  ROOT never = pred[] constant(false) }}
ENTRY main {{ x = f32[4,8]{{1,0}} parameter(0)
  w = f32[8,8]{{1,0}} parameter(1)
  stack = f32[3,8,8]{{2,1,0}} parameter(2)
  i = s32[] parameter(3)
  wide = f32[8,8]{{1,0}} negate(w)
  t = (f32[4,8]{{1,0}}, f32[8,8]{{1,0}}, f32[3,8,8]{{2,1,0}}, s32[]) tuple(x, wide, stack, i)
  loop = (f32[4,8]{{1,0}}, f32[8,8]{{1,0}}, f32[3,8,8]{{2,1,0}}, s32[]) while(t), condition=condition, body=body
  ROOT out = f32[4,8]{{1,0}} get-tuple-element(loop), index=0 }}
"""


def static_names(text: str, frozen: set[int]) -> dict[str, set[str]]:
    """Computation's name → names of its static values."""
    module = parsed(text)
    graphs = {c.id: FlatGraph(module, c) for c, _ in module.control_flow_computations()}
    found = static_by_computation(graphs, static_inputs_by_computation(module, frozen, graphs.__getitem__))
    return {graphs[i].computation.name: {node.name.split(".")[0] for node in static} for i, static in found.items()}


def test_what_depends_on_frozen_parameters_alone_is_static_in_a_loop_too() -> None:
    found = static_names(SCAN.format(other="", result="y"), {1, 2})
    assert {"w", "wide", "stack"} <= found["main"]
    assert found["main"].isdisjoint({"x", "i", "loop", "out"})
    assert {"w", "stack", "doubled", "piece", "slice"} <= found["body"]
    assert found["body"].isdisjoint({"x", "i", "first", "y"})


def test_a_slice_with_users_besides_products_is_dynamic() -> None:
    other = "rows = f32[4,8]{1,0} slice(slice), slice={[0:4],[0:8]}\n  z = f32[4,8]{1,0} add(y, rows)"
    assert found_in_body(other, "z").isdisjoint({"piece", "slice"})


def test_nothing_is_static_without_frozen_parameters() -> None:
    assert not any(static_names(SCAN.format(other="", result="y"), set()).values())


def found_in_body(other: str, result: str) -> set[str]:
    return static_names(SCAN.format(other=other, result=result), {1, 2})["body"]


def test_constants_of_a_loop_without_static_inputs_are_dynamic() -> None:
    """Nothing would take what depends on them alone out of the loop."""
    constant = "numbers = f32[2]{0} constant({1, 2})\n  z = f32[4,8]{1,0} add(y, y)"
    text = SCAN.format(other=constant, result="z")
    assert "numbers" in static_names(text, {1, 2})["body"]
    assert static_names(text, {0}).keys() == {"main"}, "the loop changes it"


def test_purity_follows_each_computation_once() -> None:
    module = parsed(doubling_fusions(40))
    assert is_pure(module, instruction(module, "all"), "fusion")
    instruction(module, "r").opcode = "rng"
    assert not is_pure(module, instruction(module, "all"), "fusion")


MIXED = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main { x = f32[8,8]{1,0} parameter(0)
  w = f32[8,8]{1,0} parameter(1)
  y = f32[8,8]{1,0} parameter(2)
  zero = f32[] constant(0)
  flipped = f32[8,8]{0,1} transpose(w), dimensions={1,0}
  scaled = f32[8,8]{1,0} multiply(x, w)
  square = f32[8,8]{1,0} dot(x, scaled), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sums = f32[8]{0} reduce(w, zero), dimensions={0}, to_apply=sum
  packed = f32[8,8]{1,0} custom-call(scaled), custom_call_target="pack"
  called = f32[8,8]{1,0} custom-call(scaled), custom_call_target="compute"
  used = f32[8,8]{1,0} add(y, packed)
  other = f32[8,8]{1,0} add(y, flipped)
  early = f32[8,8]{1,0} tanh(x)
  answer = f32[8,8]{1,0} negate(early)
  ROOT t = (f32[8,8]{1,0}, f32[8]{0}, f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(
    square, sums, called, used, other, answer) }
"""


def test_where_parameters_may_be_activations_only_the_preparation_of_weights_is_static() -> None:
    module = parsed(MIXED)
    graph = FlatGraph(module, module.entry)
    everything = {node.name.split(".")[0] for node in static_values(graph, {0, 1})}
    assert {"square", "sums", "packed", "called", "answer"} <= everything
    weights = {node.name.split(".")[0] for node in static_values(graph, {0, 1}, weights_rule(frozenset({"pack"})))}
    assert weights == {"x", "w", "flipped", "scaled", "packed"}


RETURNED = """
ENTRY main { x = f32[8,8]{1,0} parameter(0)
  y = f32[8,8]{1,0} parameter(1)
  early = f32[8,8]{1,0} tanh(x)
  result = f32[8,8]{1,0} negate(early)
  same = f32[64]{0} bitcast(result)
  later = f32[8,8]{1,0} add(result, x)
  other = f32[8,8]{1,0} exponential(x)
  used = f32[8,8]{1,0} dot(y, later), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  also = f32[8,8]{1,0} dot(other, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64]{0}, f32[8,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}) tuple(same, used, also, x) }
"""


def test_a_result_that_something_else_reads_is_computed_in_each_call() -> None:
    module = parsed(RETURNED)
    graph = FlatGraph(module, module.entry)
    weights = {node.name.split(".")[0] for node in static_values(graph, {0}, weights_rule(frozenset()))}
    assert weights == {"x", "other"}
