"""Live-range analysis of fresh buffers, compared with XLA's own buffer assignment."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from hlo_dispatch.analysis.fresh_buffers import fresh_buffers
from hlo_dispatch.ir.module import Module
from hlo_dispatch.ir.text import from_text

MEGABYTE = 1 << 20
SIDE = "f32[1024,1024]{1,0}"
"""4 MB."""


def megabytes(body: str) -> list[float]:
    """Of the temporary buffer, then of each result."""
    return [size / MEGABYTE for size in fresh_buffers(Module.from_bytes(from_text(f"HloModule m\n{body}")))]


def entry(body: str) -> list[float]:
    return megabytes(f"ENTRY main {{ p = {SIDE} parameter(0)\n{body} }}")


def call(name: str, operands: str) -> str:
    return f'{name} = {SIDE} custom-call({operands}), custom_call_target="a"'


def test_a_chain_of_calls_needs_a_source_and_a_destination() -> None:
    body = "\n".join([call("a", "p"), call("b", "a"), call("c", "b"), call("d", "c")])
    assert entry(f'{body}\nROOT r = f32[] custom-call(d), custom_call_target="a"')[0] == 8


def test_values_lie_in_the_results_buffer_until_that_is_written() -> None:
    assert entry("\n".join([call("a", "p"), call("b", "a"), call("ROOT c", "b")])) == [4, 4]


def test_parameters_constants_and_renamings_take_none() -> None:
    body = f"b = f32[1048576]{{0}} bitcast(p)\nROOT r = (f32[1048576]{{0}}, {SIDE}) tuple(b, p)"
    assert entry(body) == [0]


def test_what_is_kept_for_later_counts_until_then() -> None:
    """As activations do that a gradient reads."""
    kept = "\n".join(call(f"a{n}", f"a{n - 1}" if n else "p") for n in range(4))
    body = f'{kept}\nROOT r = f32[] custom-call(a0, a1, a2, a3), custom_call_target="a"'
    assert entry(body)[0] == 16


def test_what_only_makes_a_result_runs_at_once() -> None:
    """It stands last, and what it reads does not wait for that."""
    steps, halves, results = [], [], []
    for n in range(4):
        steps.append(call(f"a{n}", "p" if not n else f"small{n - 1}"))
        steps.append(f'small{n} = f32[8]{{0}} custom-call(a{n}), custom_call_target="a"')
        halves.append(f"h{n} = f32[512,1024]{{1,0}} slice(a{n}), slice={{[0:512], [0:1024]}}")
        results.append(f"h{n}")
    shapes = ", ".join(["f32[512,1024]{1,0}"] * 4)
    body = "\n".join([*steps, *halves, f"ROOT r = ({shapes}) tuple({', '.join(results)})"])
    assert round(entry(body)[0]) == 4


def test_a_loop_needs_what_its_body_needs() -> None:
    state = f"(s32[], {SIDE})"
    body = f"""
body {{
  t = {state} parameter(0)
  n = s32[] get-tuple-element(t), index=0
  x = {SIDE} get-tuple-element(t), index=1
  {call("a", "x")}
  {call("b", "a")}
  {call("c", "b")}
  ROOT u = {state} tuple(n, c)
}}
condition {{
  t = {state} parameter(0)
  ROOT go = pred[] constant(true)
}}
ENTRY main {{
  n = s32[] constant(0)
  p = {SIDE} parameter(0)
  copy = {SIDE} copy(p)
  t = {state} tuple(n, copy)
  w = {state} while(t), condition=condition, body=body
  x = {SIDE} get-tuple-element(w), index=1
  ROOT r = f32[] custom-call(x), custom_call_target="a"
}}"""
    assert megabytes(body)[0] == 12


def test_an_update_in_place_takes_no_memory() -> None:
    body = f"""zero = s32[] constant(0)
copy = {SIDE} copy(p)
row = f32[1,1024]{{1,0}} slice(p), slice={{[0:1], [0:1024]}}
u = {SIDE} dynamic-update-slice(copy, row, zero, zero)
ROOT r = f32[] custom-call(u), custom_call_target="a"
"""
    assert 4 <= entry(body)[0] < 4.1


FUSED = f"""
fused {{
  x = {SIDE} parameter(0)
  y = {SIDE} %s(x)%s
  ROOT z = {SIDE} add(y, y)
}}
ENTRY main {{
  p = {SIDE} parameter(0)
  {call("a", "p")}
  f = {SIDE} fusion(a), kind=kLoop, calls=fused
  ROOT r = f32[] custom-call(f), custom_call_target="a"
}}"""


@pytest.mark.parametrize(
    ("opcode", "more", "expected"), [("negate", "", 4), ("transpose", ", dimensions={1,0}", 8)], ids=["alike", "turned"]
)
def test_a_fusion_overwrites_what_it_reads_element_by_element(opcode: str, more: str, expected: float) -> None:
    assert megabytes(FUSED % (opcode, more))[0] == expected


def layers(weights, x):
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return jnp.sum(x)


@pytest.mark.parametrize("function", [layers, jax.grad(layers)], ids=["forward", "gradient"])
def test_as_xla_accounts_for_it(function) -> None:
    weights = [jnp.ones((256, 256))] * 8
    compiled = jax.jit(function).lower(weights, jnp.ones((4096, 256))).compile()
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    estimate = fresh_buffers(Module.from_bytes(module))[0]
    assert estimate == pytest.approx(compiled.memory_analysis().temp_size_in_bytes, rel=0.15)
