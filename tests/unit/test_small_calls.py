"""Small calls: which of them a kernel call undoes, and which keep their regions from being dispatched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from running import rewritten, rewritten_and_run

import hlo_dispatch
from hlo_dispatch.api import pipeline
from hlo_dispatch.ir.module import Module, is_small_call
from hlo_dispatch.selection.strategies import ALL_SUPPORTED_UNCONDITIONALLY, STRATEGIES, Strategy
from matching import instruction, parsed, serialized

M = "f32[64,64]{1,0}"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SMALL = 'frontend_attributes={xla_cpu_small_call="true"}'
ONE = f"""
called {{ a = {M} parameter(0)
  b = {M} parameter(1)
  ROOT inner = {M} dot(a, b), {DOT} }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  call = {M} call(x, w), to_apply=called, {SMALL}
  ROOT outer = {M} dot(call, w), {DOT} }}
"""
# A loop and a branch in a small call within a small call; %other is a small call without a product.
STATE = f"(s32[], {M}, {M})"
NESTED = f"""
body {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = {M} get-tuple-element(s), index=1
  b = {M} get-tuple-element(s), index=2
  one = s32[] constant(1)
  more = s32[] add(i, one)
  looped = {M} LOOPED
  ROOT next = {STATE} tuple(more, looped, b) }}
condition {{ s.1 = {STATE} parameter(0)
  i.1 = s32[] get-tuple-element(s.1), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i.1, three), direction=LT }}
yes {{ a.1 = {M} parameter(0)
  ROOT branched = {M} BRANCHED }}
no {{ ROOT a.2 = {M} parameter(0) }}
innermost {{ x.2 = {M} parameter(0)
  w.2 = {M} parameter(1)
  zero = s32[] constant(0)
  state = {STATE} tuple(zero, x.2, w.2)
  loop = {STATE} while(state), condition=condition, body=body
  end = s32[] get-tuple-element(loop), index=0
  result = {M} get-tuple-element(loop), index=1
  two = s32[] constant(2)
  which = pred[] compare(end, two), direction=GT
  ROOT branches = {M} conditional(which, result, result), true_computation=yes, false_computation=no }}
between {{ x.1 = {M} parameter(0)
  w.1 = {M} parameter(1)
  ROOT inside = {M} call(x.1, w.1), to_apply=innermost, {SMALL} }}
negated {{ x.3 = {M} parameter(0)
  ROOT negate = {M} negate(x.3) }}
ENTRY main {{ x = {M} parameter(0)
  w = {M} parameter(1)
  other = {M} call(x), to_apply=negated, {SMALL}
  first = {M} call(other, w), to_apply=between, frontend_attributes={{noted="yes",xla_cpu_small_call="true"}}
  ROOT outer = {M} OUTER }}
"""
PRODUCTS = {"LOOPED": f"dot(a, b), {DOT}", "BRANCHED": f"dot(a.1, a.1), {DOT}", "OUTER": f"dot(first, w), {DOT}"}
NO_PRODUCTS = {"LOOPED": "negate(a)", "BRANCHED": "negate(a.1)", "OUTER": "negate(first)"}


def nested(*places: str) -> str:
    """NESTED with products in these places."""
    text = NESTED
    for place, otherwise in NO_PRODUCTS.items():
        text = text.replace(place, PRODUCTS[place] if place in places else otherwise)
    return text


def small_calls(module: Module) -> set[str]:
    return {i.name for i in module.instructions if is_small_call(i)}


@pytest.mark.parametrize("is_small", ["true", "false"])
def test_calls_are_entered(is_small: str) -> None:
    text = ONE.replace('"true"', f'"{is_small}"')
    assert not small_calls(rewritten_and_run(text)), "a small call has no custom-calls"
    report = hlo_dispatch.rewrite(serialized(text), policy="always").report
    assert [region.dispatched for region in report.regions] == [True, True]


def test_what_the_cost_model_leaves_stays_a_small_call() -> None:
    result = hlo_dispatch.rewrite(serialized(ONE), policy="heuristic")
    codes = {region.name: region.refusal.code for region in result.report.regions if region.refusal is not None}
    assert codes == {"inner": "small-call", "outer": "policy"}
    assert result.proto is None


@pytest.mark.parametrize(
    ("products", "left"),
    [
        (("LOOPED", "BRANCHED", "OUTER"), {"other"}),
        (("LOOPED",), {"other"}),
        (("BRANCHED",), {"other"}),
        (("OUTER",), {"inside", "other", "first"}),
    ],
    ids=lambda value: " ".join(sorted(value)),
)
def test_every_small_call_around_a_kernel_call_is_undone_and_no_other(products: tuple[str, ...], left: set) -> None:
    """Through loops and branches, however deep."""
    text = nested(*products)
    assert small_calls(parsed(text)) == {"inside", "other", "first"}
    after = rewritten(text)
    assert small_calls(after) == left
    kept = {entry.key: entry.value for entry in instruction(after, "first").frontend_attributes.map}
    assert kept["noted"] == "yes", "its other attributes stay"


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_a_trial_has_them_undone_in_one_strategy(strategy: Strategy) -> None:
    result, _ = replace(pipeline((), "stored"), strategy=strategy).run(serialized(ONE))
    is_undone = result is not None and not small_calls(Module.from_bytes(result))
    assert is_undone == (strategy is ALL_SUPPORTED_UNCONDITIONALLY)


ROW = "f32[1,1024]{1,0}"


@pytest.mark.parametrize(
    ("layout", "is_dispatched"), [("{0,1}", True), ("{1,0}", False)], ids=["with strides", "in order"]
)
@pytest.mark.parametrize("policy", ["heuristic", "stored"])
def test_one_row_times_weights_that_are_read_with_strides_is_worth_it(
    policy: str, layout: str, is_dispatched: bool
) -> None:
    weights = f"f32[1024,1024]{layout}"
    text = ONE.replace(f"b = {M}", f"b = {weights}").replace(f"w = {M}", f"w = {weights}").replace(M, ROW)
    text = text.replace(f"ROOT outer = {ROW} dot(call, w), {DOT}", f"ROOT outer = {ROW} negate(call)")
    result = hlo_dispatch.rewrite(serialized(text), policy=policy)
    assert [region.dispatched for region in result.report.regions] == [is_dispatched]
    if is_dispatched:
        assert not small_calls(rewritten(text, policy))
