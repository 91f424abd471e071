"""Time by kind: what instructions are, that loops count by trips, and that the sum is the wall time's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlo_dispatch
from hlo_dispatch.bench.generate import decoder
from hlo_dispatch.bench.generate.weights import DecoderSize
from hlo_dispatch.bench.instruction_kinds import (
    ATTENTION,
    NORMS,
    PRODUCTS,
    REST,
    SLICES,
    SMALL_CALLS,
    UPDATES,
    instruction_kinds,
    kernel_kind,
)
from hlo_dispatch.bench.member_shares import member_shares
from hlo_dispatch.bench.thunks import Event
from hlo_dispatch.bench.time_by_kind import shared_nanoseconds, time_by_kind
from hlo_dispatch.ir.kernel_call import KernelCall
from hlo_dispatch.ir.module import Module

SIZE = DecoderSize(layers=3, width=64, heads=4, kv_heads=2, hidden=160, vocabulary=96)
CAPACITY = 48


@pytest.fixture(autouse=True)
def uninstalled() -> None:
    hlo_dispatch.uninstall()


def a_step(form: str) -> tuple[Any, ...]:
    arrays = decoder.parameters(SIZE, form, "float32"), decoder.empty_cache(SIZE, form, 1, CAPACITY, "float32")
    return jax.jit(decoder.step(SIZE, form), donate_argnums=1), *arrays, jnp.ones((1, 1), "int32"), jnp.int32(7)


@pytest.mark.parametrize("form", decoder.FORMS)
def test_kinds_of_a_decoder(form: str) -> None:
    step, *arguments = a_step(form)
    executable = step.lower(*arguments).compile().runtime_executable()
    module = Module.from_bytes(executable.hlo_modules()[0].as_serialized_hlo_module_proto())
    kinds = instruction_kinds(module)
    by_kind: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        by_kind.setdefault(kind, []).append(name)
    layers = SIZE.layers if form == "unrolled" else 1
    assert len([name for name in by_kind[PRODUCTS] if "dot" in name or "fusion" in name]) == 7 * layers + 1
    assert len(by_kind[ATTENTION]) >= 4 * layers, "two products, and a softmax between them"
    assert len(by_kind[NORMS]) >= 2 * layers + 1
    assert len(by_kind[UPDATES]) >= 2 * layers
    # XLA writes each of the seven stacked weights' slices out.
    assert len(by_kind.get(SLICES, ())) >= (0 if form == "unrolled" else 5)


def test_forms_give_the_same_tokens() -> None:
    tokens = []
    for form in decoder.FORMS:
        step, weights, cache, token, _ = a_step(form)
        token, cache = step(weights, cache, jnp.arange(5, dtype="int32")[None], jnp.int32(0))
        tokens.append([int(token[0, 0])])
        for position in (5, 6, 7):
            token, cache = step(weights, cache, token, jnp.int32(position))
            tokens[-1].append(int(token[0, 0]))
    assert tokens[0] == tokens[1] == tokens[2]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_loop_counts_by_its_trips(is_frozen: bool) -> None:
    weights, x = jnp.ones((6, 64, 64)), jnp.ones((256, 64))

    def layers(weights: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    with hlo_dispatch.enabled(policy="always"):
        run = hlo_dispatch.freeze(layers, weights) if is_frozen else jax.jit(lambda x: layers(weights, x))
        found = time_by_kind(lambda: jax.block_until_ready(run(x)), runs=2, seconds=0.01)
    products = [one for one in found.instructions if one.kind == PRODUCTS]
    assert [one.trips for one in products] == [6]
    assert products[0].computed_by == "hlo_dispatch.onednn.matmul"
    assert 0 < found.total <= found.recorded
    assert found.total == pytest.approx(sum(one.seconds for one in found.instructions))


def test_a_users_function_with_donated_arguments() -> None:
    step, *arguments = a_step("carry")
    found = hlo_dispatch.profile(step, *arguments)
    by_name = {one.name: one.trips for one in found.instructions}
    assert set(by_name.values()) >= {1, SIZE.layers}
    text = str(found)
    assert "sum" in text
    assert "wall, recorded" in text
    assert PRODUCTS in text


def test_what_runs_at_the_same_time_shares_it() -> None:
    events = [Event("m", "a", 0, 10), Event("m", "b", 4, 8), Event("m", "a", 20, 25), Event("n", "a", 30, 31)]
    assert shared_nanoseconds(events) == {("m", "a"): 4 + 2 + 2 + 5, ("m", "b"): 2, ("n", "a"): 1}


def test_members_share_their_groups_time() -> None:
    weights, x = jnp.ones((256, 256)), jnp.ones((64, 256))

    def chain(x: Any) -> Any:
        return jax.nn.relu(jax.nn.relu(x @ weights) @ weights)

    with hlo_dispatch.enabled(policy="always"):
        text = jax.jit(chain).lower(x).compile().runtime_executable().hlo_modules()[0]
    module = Module.from_bytes(text.as_serialized_hlo_module_proto())
    (group,) = [i for i in module.entry.instructions[:] if i.custom_call_target == "hlo_dispatch.onednn.sequence"]
    shares = member_shares(KernelCall.read(group))
    assert shares == {"hlo_dispatch.onednn.matmul": (2, pytest.approx(1.0))}


def test_kinds_of_kernels_and_of_small_calls() -> None:
    targets = ("own.attention", "onednn.layer_norm", "onednn.matmul", "own.narrow_product", "onednn.softmax")
    assert kernel_kind("hlo_dispatch.own.argmax") == REST
    assert [kernel_kind(f"hlo_dispatch.{target}") for target in targets] == [
        ATTENTION, NORMS, PRODUCTS, PRODUCTS, NORMS,
    ]  # fmt: skip
    from hlo_dispatch.ir import text

    module = text.parsed("""
HloModule small

inside (x: f32[4]) -> f32[4] {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} tanh(x)
}

ENTRY main (x: f32[4]) -> f32[4] {
  x.1 = f32[4]{0} parameter(0)
  ROOT gathered = f32[4]{0} call(x.1), to_apply=inside, frontend_attributes={xla_cpu_small_call="true"}
}
""")
    kinds = instruction_kinds(module)
    assert kinds["gathered"] == SMALL_CALLS
