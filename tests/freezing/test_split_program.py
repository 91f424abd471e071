"""The frontier of a partition: prologue and steady-state program compute what the whole program does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from split_program import assert_equal, halves, optimized

from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.run import executable

random = np.random.default_rng()


def values(*shape: int, dtype: str = "float32") -> jax.Array:
    return jnp.asarray(random.standard_normal(shape), dtype)


def normalized(weights, mean, variance, x):
    return jax.nn.relu((x @ weights - mean) * jax.lax.rsqrt(jnp.abs(variance) + 1e-3))


def conv(weights, x, **options):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=numbers, **options)


@pytest.mark.parametrize("policy", ["never", "always"])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_layer(policy: str, rows: int) -> None:
    found = halves(
        normalized, values(33, 17), values(17), values(17), values(rows, 33), frozen=(0, 1, 2), policy=policy
    )
    assert_equal(found)
    assert "rsqrt" not in found.opcodes(program=True)
    assert "rsqrt" in found.opcodes(program=False)
    assert found.split.dynamic_inputs == [3]


@pytest.mark.parametrize("policy", ["never", "always"])
@pytest.mark.parametrize(("size", "channels", "groups"), [(1, 3, 1), (7, 16, 1), (9, 32, 32), (12, 24, 2)])
def test_a_convolution_takes_its_scale_into_the_weights(policy: str, size: int, channels: int, groups: int) -> None:
    def program(weights, scale, shift, x):
        return jnp.maximum(conv(weights, x, feature_group_count=groups) * scale + shift, 0)

    arguments = values(3, 3, channels // groups, channels), values(channels), values(channels)
    found = halves(program, *arguments, values(2, size, size, channels), frozen=(0, 1, 2), policy=policy)
    assert_equal(found)
    if policy == "always" and size > 1:
        assert any(value.is_prepacked for value in found.split.preprocessed)


def test_a_scale_that_is_no_weight_stays_where_it_is() -> None:
    def program(weights, x, scale):
        return conv(weights, x) * scale

    found = halves(program, values(3, 3, 16, 16), values(1, 8, 8, 16), values(16))
    assert_equal(found)
    assert found.split.dynamic_inputs == [1, 2]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("policy", ["never", "always"])
def test_half_precision(dtype: str, policy: str) -> None:
    found = halves(
        lambda w, x: jax.nn.gelu(x @ w.astype(dtype)), values(64, 48), values(5, 64, dtype=dtype), policy=policy
    )
    assert_equal(found, 3e-2 if dtype == "bfloat16" else 6e-3)


def test_a_trial_is_split_as_the_program_is() -> None:
    """A whole-program trial quantizes no weights in its runs, and widens them as the frozen program does."""

    def program(weights, x):
        return x @ jnp.round(weights * 100).astype("int8").astype("float32")

    executable.start()
    module = optimized(program, (values(64, 48), values(5, 64)))
    plan = pipeline((), "always")
    split = plan.split(module.copy(), frozenset((0,)), widened=frozenset((0,)))
    assert [str(value.shape).partition("{")[0] for value in split.preprocessed] == ["s8[64,48]"]


def test_what_would_only_be_larger_is_computed_in_every_call() -> None:
    def program(bias, narrow, x):
        return x + jnp.exp(bias)[None, :] * narrow.astype("float32")

    found = halves(program, values(300), values(200, 300, dtype="bfloat16"), values(200, 300), frozen=(0, 1))
    assert_equal(found)
    assert found.prepared in ([], ["f32[300]"])
    assert 1 in found.split.frozen_inputs


def test_what_is_dear_is_computed_once_however_large() -> None:
    found = halves(lambda a, x: x + a @ a.T, values(50, 2), values(50, 50), policy="never")
    assert_equal(found)
    assert found.prepared == ["f32[50,50]"]
    assert "dot" not in found.opcodes(program=True)


def test_another_order_in_memory() -> None:
    def program(weights, x):
        return jnp.sin(weights).T * x, jnp.cos(jnp.transpose(weights.reshape(4, 5, 6), (2, 0, 1))) + x.reshape(6, 4, 5)

    assert_equal(halves(program, values(20, 6), values(6, 20)))


def test_one_value_is_read_in_prologue_and_program() -> None:
    found = halves(lambda w, x: (x @ w, x + jnp.tanh(w).sum(0), w[0] * x[0]), values(9, 9), values(9, 9))
    assert_equal(found)


def test_a_result_may_be_static() -> None:
    found = halves(lambda w, x: (jnp.exp(w), x + 1, w), values(5), values(5))
    assert_equal(found)
    assert "exponential" not in found.opcodes(program=True)


@pytest.mark.parametrize("frozen", [(), (0, 1)])
def test_nothing_and_everything(frozen: tuple[int, ...]) -> None:
    found = halves(lambda w, x: jnp.tanh(x @ w), values(8, 8), values(3, 8), frozen=frozen)
    assert_equal(found)
    assert (found.split.prologue is None) == (frozen == ())


def test_an_unread_parameter_is_taken_still() -> None:
    found = halves(lambda w, unread, x, also: x * jnp.exp(w), values(4), values(4), values(4), values(7), frozen=(0, 1))
    assert_equal(found)
    assert found.split.dynamic_inputs == [2, 3]
    assert found.split.frozen_inputs == []


@pytest.mark.parametrize("first", [-1.0, 1.0])
def test_branches_that_only_return_static_values_do_not_share_them(first: float) -> None:
    def program(weights, x):
        return x + jax.lax.cond(weights[0, 0] > 0, lambda w: w @ w, lambda w: w - 1, weights)

    weights = np.array(values(6, 6))
    weights[0, 0] = first
    assert_equal(halves(program, weights, values(6, 6), policy="never"))


def test_a_loop_whose_state_becomes_static() -> None:
    def program(weights, x):
        def step(_, state):
            kept, x = state
            return weights @ weights, jnp.tanh(x @ kept)

        return jax.lax.fori_loop(0, 3, step, (weights, x))

    assert_equal(halves(program, values(6, 6), values(6, 6), policy="never"))


def test_static_control_flow_runs_once() -> None:
    def program(weights, x):
        settled = jax.lax.fori_loop(0, 5, lambda _, w: jnp.tanh(w @ w), weights)
        picked = jax.lax.cond(weights[0, 0] > 0, lambda w: w @ w, lambda w: w - 1, weights)
        return x @ settled + picked

    found = halves(program, values(6, 6), values(6, 6), policy="never")
    assert_equal(found)
    assert not {"while", "conditional"} & found.opcodes(program=True)


def test_a_loop_over_the_input_keeps_its_weights() -> None:
    def program(weights, x):
        return jax.lax.scan(lambda carry, w: (jnp.tanh(carry @ w), carry.sum()), x, weights)

    assert_equal(halves(program, values(4, 8, 8), values(3, 8)))


def test_ops_with_effects_are_not_static() -> None:
    seen: list[int] = []

    def program(weights, x):
        jax.debug.callback(lambda value: seen.append(int(value.size)), weights)
        return x * jnp.exp(weights)

    arguments = values(5), values(5)
    compiled = jax.jit(program, keep_unused=True).lower(*arguments).compile()
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    from hlo_dispatch.ir.module import Module
    from hlo_dispatch.passes.partition.split_at_frontier import split_at

    program = split_at(Module.from_bytes(module), frozenset({0}), threads=2).program
    assert [i.custom_call_target for i in program.entry.instructions].count("") >= 1
    assert any(i.opcode == "custom-call" for i in program.entry.instructions)


def test_constants_are_frozen_too() -> None:
    constant = np.asarray(values(40, 40))
    found = halves(lambda x: x @ jnp.exp(constant), values(3, 40), frozen=(), policy="always")
    assert_equal(found)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_does_not_vanish(value: float) -> None:
    weights = values(17, 9).at[3, 4].set(value)
    assert_equal(halves(lambda w, x: jnp.tanh(x @ w), weights, values(5, 17)))


def test_equal_calls_share_their_prepacked_weights() -> None:
    found = halves(lambda w, x: conv(w, x) + jnp.tanh(conv(w, x * 2)), values(3, 3, 32, 32), values(1, 14, 14, 32))
    assert_equal(found)
    assert sum(value.is_prepacked for value in found.split.preprocessed) <= 1


@pytest.mark.parametrize("policy", ["never", "always"])
def test_what_may_be_activations_is_computed_in_each_call(policy: str) -> None:
    """Where everything is frozen, weights are prepacked and scaled, and every product is left to the calls."""

    def program(w, scale, v, x):
        first = jax.nn.relu(x @ (w * scale))
        return jax.lax.fori_loop(0, 3, lambda _, y: y @ v, first), first.sum(), jnp.tanh(w)

    arguments = values(64, 48), values(48), 0.1 * values(48, 48), values(40, 64)
    found = halves(program, *arguments, frozen=range(4), policy=policy, may_be_activations=True)
    assert_equal(found)
    modules = found.split.prologue, found.split.program
    products = [sum(_is_product(i) for c in m.proto.computations for i in c.instructions) for m in modules if m]
    assert products[-1] == 2
    assert sum(products) == 2
    if found.split.prologue is not None:
        assert found.opcodes(program=False).isdisjoint({"dot", "while", "reduce", "tanh"})
    everything = halves(program, *arguments, frozen=range(4), policy=policy)
    assert "tanh" not in everything.opcodes(program=True)


def test_a_result_that_a_product_reads_is_computed_in_each_call() -> None:
    def program(w, x):
        hidden = jax.nn.relu(jnp.tanh(x))
        return hidden, hidden @ jnp.exp(w)

    found = halves(program, values(40, 8), values(3, 40), frozen=(0, 1), policy="never", may_be_activations=True)
    assert_equal(found)
    assert {"tanh", "maximum"} <= found.opcodes(program=True)
    assert "exponential" in found.opcodes(program=False)


def _is_product(instruction):
    return instruction.opcode == "dot" or instruction.custom_call_target.endswith("matmul")
