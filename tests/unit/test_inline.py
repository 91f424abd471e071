"""Inlining: plain calls of a module dumped before XLA's optimizations are inlined, others stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import rewritten, rewritten_and_run

import hlo_dispatch
from hlo_dispatch.ir import text as hlo_text
from hlo_dispatch.ir.inline import inline_calls
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.verify import verify
from matching import serialized
from side_by_side import run_module

RELU = """
relu {
  y = f32[64,64]{1,0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[64,64]{1,0} broadcast(zero), dimensions={}
  ROOT largest = f32[64,64]{1,0} maximum(y, zeros)
}
"""
ENTRY = """
ENTRY main {
  x = f32[64,64]{1,0} parameter(0)
  w = f32[64,64]{1,0} parameter(1)
BODY
}
"""
DOT = "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def module(body: str, before: str = RELU) -> str:
    return f"{before}{ENTRY.replace('BODY', body)}"


def inlined(serialized_module: bytes) -> bytes:
    parsed = Module.from_bytes(serialized_module)
    return parsed.to_bytes() if inline_calls(parsed) else serialized_module


def calls(serialized_module: bytes) -> list[str]:
    parsed = Module.from_bytes(serialized_module)
    verify(parsed)
    return [i.name for i in parsed.instructions if i.opcode == "call"]


def formulas(text: str) -> list[str]:
    return [region.formula for region in hlo_dispatch.rewrite(serialized(text), policy="always").report.dispatched]


def test_an_epilogue_behind_a_call() -> None:
    text = module(f"p = f32[64,64]{{1,0}} {DOT}\n ROOT r = f32[64,64]{{1,0}} call(p), to_apply=relu")
    assert formulas(text) == ["relu(x @ w)"]
    assert "call" not in [i.opcode for i in rewritten_and_run(text).entry.instructions]


def test_calls_of_calls_and_one_that_is_called_twice() -> None:
    layer = """
layer {
  x = f32[64,64]{1,0} parameter(1)
  w = f32[64,64]{1,0} parameter(0)
  p = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[64,64]{1,0} call(p), to_apply=relu
}
"""
    body = """
  a = f32[64,64]{1,0} call(w, x), to_apply=layer
  b = f32[64,64]{1,0} call(w, a), to_apply=layer
  ROOT s = f32[64,64]{1,0} add(a, b)"""
    text = module(body, RELU + layer)
    after = inlined(serialized(text))
    assert calls(after) == []
    assert len(Module.from_bytes(after).proto.computations) == 1, "the others are dead"
    assert len(formulas(text)) == 2
    random = np.random.default_rng(1)
    x, w = (random.standard_normal((64, 64)).astype("float32") / 4 for _ in range(2))
    # In this place of its pipeline XLA does not take calls of calls any more, so that stock cannot say what is right.
    (result,) = run_module(rewritten(text).to_bytes(), [x, w], jax.ShapeDtypeStruct((64, 64), "float32"))
    first = np.maximum(x @ w, 0)
    np.testing.assert_allclose(np.asarray(result), first + np.maximum(first @ w, 0), atol=1e-4)


@pytest.mark.parametrize("called", ["ROOT y = f32[64,64]{1,0} parameter(0)", "y = f32[64,64]{1,0} parameter(0)\n"])
def test_what_only_passes_on(called: str) -> None:
    """Its result is its argument, or a constant that reads none."""
    rest = "" if "ROOT" in called else "c = f32[] constant(2)\n ROOT s = f32[64,64]{1,0} broadcast(c), dimensions={}"
    same = f"same {{\n{called}{rest}\n}}\n"
    body = f"p = f32[64,64]{{1,0}} {DOT}\n q = f32[64,64]{{1,0}} call(p), to_apply=same\n"
    text = module(body + "ROOT t = f32[64,64]{1,0} add(q, p)", same)
    assert calls(inlined(serialized(text))) == []
    rewritten_and_run(text)


def test_inside_a_loop() -> None:
    before = (
        RELU
        + """
body {
  all = (s32[], f32[64,64]{1,0}, f32[64,64]{1,0}) parameter(0)
  i = s32[] get-tuple-element(all), index=0
  x = f32[64,64]{1,0} get-tuple-element(all), index=1
  w = f32[64,64]{1,0} get-tuple-element(all), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  p = f32[64,64]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[64,64]{1,0} call(p), to_apply=relu
  ROOT both = (s32[], f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(next, r, w)
}
goes_on {
  all = (s32[], f32[64,64]{1,0}, f32[64,64]{1,0}) parameter(0)
  i = s32[] get-tuple-element(all), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i, three), direction=LT
}
"""
    )
    body = """
  zero = s32[] constant(0)
  start = (s32[], f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(zero, x, w)
  end = (s32[], f32[64,64]{1,0}, f32[64,64]{1,0}) while(start), condition=goes_on, body=body
  ROOT r = f32[64,64]{1,0} get-tuple-element(end), index=1"""
    text = module(body, before)
    assert formulas(text) == ["relu(x @ w)"]
    rewritten_and_run(text)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("relu", ', frontend_attributes={xla_cpu_small_call="true"}'),
        ("relu", ', frontend_attributes={inlineable="false"}'),
        ("relu", ', backend_config={"outer_dimension_partitions":["2"]}'),
        ("parallel_relu", ""),
    ],
    ids=["small", "not to be inlined", "partitioned", "parallel"],
)
def test_calls_that_mean_something_stay(name: str, more: str) -> None:
    body = f"p = f32[64,64]{{1,0}} {DOT}\n ROOT r = f32[64,64]{{1,0}} call(p), to_apply={name}{more}"
    before = serialized(module(body, RELU.replace("relu {", f"{name} {{")))
    assert calls(before) == ["r"]
    assert inlined(before) is before


def test_a_task_of_several_threads_stays() -> None:
    """XLA's CPU compiler outlines it and writes on its root how it is divided."""
    divided = RELU.replace(
        "maximum(y, zeros)", 'maximum(y, zeros), backend_config={"outer_dimension_partitions":["2"]}'
    )
    before = serialized(module("ROOT r = f32[64,64]{1,0} call(x), to_apply=relu", divided))
    assert inlined(before) is before


def test_what_is_compiled_already_stays() -> None:
    text = module(f"p = f32[64,64]{{1,0}} {DOT}\n ROOT r = f32[64,64]{{1,0}} call(p), to_apply=relu")
    scheduled = hlo_text.from_text(f"HloModule m, is_scheduled=true\n{text}")
    assert calls(inlined(scheduled)) == ["r"]


def test_a_module_without_calls_is_left_alone() -> None:
    plain = rewritten(module(f"ROOT p = f32[64,64]{{1,0}} {DOT}"))
    assert not inline_calls(plain)


def test_what_jax_lowers() -> None:
    """jax.nn's functions are jitted, and calls of their own until XLA inlines them."""
    x, w = np.ones((4, 32), "float32"), np.ones((32, 16), "float32")
    lowered = jax.jit(lambda x, w: jax.nn.relu(x @ w) + jax.nn.softplus(jnp.sin(x) @ w)).lower(x, w)
    before = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    assert calls(before)
    assert calls(inlined(before)) == []
    report = hlo_dispatch.rewrite(lowered.as_text(dialect="hlo"), policy="always").report
    assert any("relu(" in region.formula for region in report.dispatched)
