"""Gathering of small loops: which loops become small calls, and that they compute the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from running import assert_computes_the_same

import hlo_dispatch
from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune import whole_program_trial
from hlo_dispatch.ir.module import Module, is_small_call
from hlo_dispatch.passes.small_loops import LEAST_TRIPS, MOST_BYTES
from hlo_dispatch.selection.measurements import STOCK, Measurement
from hlo_dispatch.selection.strategies import COST_MODEL
from matching import serialized

V = "f32[32]{0}"
STATE = f"(s32[], {V}, f32[SIZE,32]{{1,0}})"
LOOP = f"""
slow {{ p = {V} parameter(0)
  half = f32[] constant(0.5)
  halves = {V} broadcast(half), dimensions={{}}
  ROOT slowed = {V} multiply(p, halves) }}
row {{ q = f32[SIZE,32]{{1,0}} parameter(0)
  index = s32[] parameter(1)
  none = s32[] constant(0)
  taken = f32[1,32]{{1,0}} dynamic-slice(q, index, none), dynamic_slice_sizes={{1,32}}
  ROOT reshaped = {V} bitcast(taken) }}
body {{ s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {V} get-tuple-element(s), index=1
  rows = f32[SIZE,32]{{1,0}} get-tuple-element(s), index=2
  one = s32[] constant(1)
  more = s32[] add(i, one)
  slower = {V} fusion(x), kind=kLoop, calls=slow
  given = {V} fusion(rows, i), kind=kLoop, calls=row
  inside = {V} INSIDE
  ROOT next = {STATE} tuple(more, inside, rows) }}
condition {{ c = {STATE} parameter(0)
  at = s32[] get-tuple-element(c), index=0
  end = s32[] constant(TRIPS)
  ROOT less = pred[] compare(at, end), direction=LT }}
ENTRY main {{ first = {V} parameter(0)
  table = f32[SIZE,32]{{1,0}} parameter(1)
  zero = s32[] constant(0)
  counter = s32[] copy(zero)
  changed = {V} copy(first)
  begin = {STATE} tuple(counter, changed, table)
  loop = {STATE} while(begin), condition=condition, body=body, backend_config=CONFIG
  ROOT result = {V} get-tuple-element(loop), index=1 }}
"""
CONFIG = '{"known_trip_count":{"n":"TRIPS"}}'


def text(inside: str = "add(slower, given)", trips: int = LEAST_TRIPS, size: int = 500, config: str = CONFIG) -> str:
    return (
        LOOP.replace("INSIDE", inside).replace("CONFIG", config).replace("TRIPS", str(trips)).replace("SIZE", str(size))
    )


def tried(text: str) -> Module | None:
    """The module that a whole-program trial compares with stock's; None: there is none."""
    result, _ = replace(pipeline((), "stored"), strategy=COST_MODEL).run(serialized(text))
    return None if result is None else Module.from_bytes(result)


def tried_and_run(text: str) -> Module:
    """The same, after XLA has compiled and run both forms and their results agree."""
    module = tried(text)
    assert module is not None
    assert_computes_the_same(module, text)
    return module


def gathered(module: Module) -> list[str]:
    """What the small calls call."""
    calls = [i for i in module.instructions if is_small_call(i)]
    return [module.computations[call.called_computation_ids[0]].name for call in calls]


@pytest.mark.parametrize("size", [LEAST_TRIPS, 20 * MOST_BYTES // 128])
def test_a_long_loop_of_small_iterations_is_one_call(size: int) -> None:
    """Of a large array it reads a row in each iteration."""
    assert gathered(tried_and_run(text(size=size))) == ["loop_computation"]


@pytest.mark.parametrize(
    "stays",
    [
        text(trips=LEAST_TRIPS - 1),
        text(config="{}"),
        text("sort(slower), dimensions={0}, to_apply=before").replace(
            "slow {", "before { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT lt = pred[] compare(a, b), "
            "direction=LT }\nslow {",
        ),
        text("custom-call(slower), custom_call_target=\"noted\""),
        text().replace("slower = f32[32]{0} fusion(x), kind=kLoop", "slower = f32[32]{0} fusion(x), kind=kCustom"),
        text("dot(slower, square), lhs_contracting_dims={0}, rhs_contracting_dims={0}").replace(
            "inside =", "square = f32[32,32]{1,0} broadcast(given), dimensions={0}\n inside ="
        ),
    ],
    ids=["short", "of unknown length", "a sort", "a custom-call", "a library's fusion", "a product"],
)  # fmt: skip
def test_what_stays_a_loop(stays: str) -> None:
    assert tried(stays) is None


def test_large_iterations_stay() -> None:
    large = text().replace("f32[32]", f"f32[{MOST_BYTES // 8}]").replace("500,32]", f"500,{MOST_BYTES // 8}]")
    large = large.replace("1,32", f"1,{MOST_BYTES // 8}")
    assert tried(large) is None


@pytest.mark.parametrize("policy", ["stored", "heuristic", "always", "never"])
def test_without_a_trial_it_stays_a_loop(policy: str) -> None:
    assert hlo_dispatch.rewrite(serialized(text()), policy=policy).proto is None


def test_control_dependencies_stay() -> None:
    ordered = text().replace("  zero =", "  before = f32[32]{0} negate(first)\n  zero =")
    ordered = ordered.replace("while(begin),", "while(begin), control-predecessors={before},")
    ordered = ordered.replace("  ROOT result =", "  after = f32[32]{0} negate(first), control-predecessors={loop}\n"
                              "  ROOT result =")  # fmt: skip
    module = tried_and_run(ordered)
    by_name = {i.name: i for i in module.entry.instructions}
    (call,) = (i for i in module.entry.instructions if is_small_call(i))
    assert call.control_predecessor_ids == [by_name["before"].id]
    assert by_name["after"].control_predecessor_ids == [call.id]


def steps(x: jax.Array) -> jax.Array:
    """A loop of loops."""

    def inner(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x) + 0.1 * jnp.roll(x, 1), x)

    return jax.lax.fori_loop(0, LEAST_TRIPS, lambda i, x: inner(x) * 1.01, x)


@pytest.mark.skipif(jax.__version_info__ >= (0, 12), reason="XLA makes a small call of it")
@pytest.mark.parametrize("is_faster", [True, False])
def test_the_trial_decides(is_faster: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compare(stock: Module, variants: Iterable[tuple[str, Module]], **_: object) -> Measurement:
        assert not gathered(stock)
        ((name, module),) = variants
        assert len(gathered(module)) == 1
        chosen = name if is_faster else STOCK
        return Measurement(chosen, {STOCK: 2e-3, name: 1e-3}, thorough=True, kernel=whole_program_trial.ALL_KERNELS)

    monkeypatch.setattr(whole_program_trial, "compare", compare)
    monkeypatch.setenv("HLO_DISPATCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HLO_DISPATCH_MEASURE_SECONDS", "60")
    x = jnp.linspace(-1, 1, 300)
    stock = jax.jit(lambda x: steps(x)).lower(x).compile()
    with hlo_dispatch.enabled(policy="measure"):
        compiled = jax.jit(lambda x: steps(x)).lower(x).compile()
    module = Module.from_bytes(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    opcodes = [i.opcode for i in module.entry.instructions if i.opcode in ("while", "call")]
    assert opcodes == ["call" if is_faster else "while"]
    np.testing.assert_allclose(compiled(x), stock(x), rtol=1e-5)
