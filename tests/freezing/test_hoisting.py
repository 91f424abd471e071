"""Loop-invariant code motion: static values of a loop or branch are hoisted into the prologue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from split_program import assert_equal, halves

random = np.random.default_rng()


def values(*shape: int) -> jax.Array:
    return jnp.asarray(random.standard_normal(shape) / np.sqrt(shape[-1]), "float32")


def steps(w, x):
    return jax.lax.fori_loop(0, 5, lambda i, h: jnp.tanh(h @ w.T + 1), x)


def made_of_two(w, v, x):
    return jax.lax.fori_loop(0, 4, lambda i, h: jax.nn.relu(h @ (w * 2 + v).T + v[0]), x)


def nested(w, x):
    def turn(i, h):
        return jax.lax.fori_loop(0, i + 1, lambda j, g: jnp.tanh(g @ jnp.exp(w)), h) + h @ w.T

    return jax.lax.fori_loop(0, 3, turn, x)


def with_outputs(w, x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), h.sum()), x, None, length=5)


def branches(w, x):
    return jax.lax.cond(x[0, 0] > 0, lambda w, x: jnp.tanh(x @ w.T + 1), lambda w, x: x @ jnp.exp(w) * 2, w, x)


def branch_in_loop(w, x):
    def turn(i, h):
        return jax.lax.cond(h.sum() > 0, lambda h: jnp.tanh(h @ w), lambda h: h + 1, h)

    return jax.lax.fori_loop(0, 4, turn, x)


def loop_in_branch(w, x):
    return jax.lax.cond(x[0, 0] > 0, lambda h: steps(w, h), lambda h: h, x)


def overwritten(w, x):
    """The inner loop overwrites the copy of a constant that each turn of the outer one makes for it."""

    def turn(i, h):
        scale = jnp.array([0.5, 2, 1, 0.25])
        _, h = jax.lax.fori_loop(0, 3, lambda j, s: (jnp.roll(s[0], 1), jnp.tanh(s[1] @ w) * s[0][0]), (scale, h))
        return h + 1

    return jax.lax.fori_loop(0, 3, turn, x)


def sampled(w, x):
    def turn(i, state):
        h, key = state
        here, key = jax.random.split(key)
        return jnp.tanh(h @ w) + jax.random.normal(here, h.shape), key

    return jax.lax.fori_loop(0, 4, turn, (x, jax.random.PRNGKey(3)))


def no_turns(w, x):
    return jax.lax.fori_loop(0, jnp.int32(x.sum() > 1e9), lambda i, h: jnp.tanh(h @ w.T), x)


PROGRAMS: list[tuple[Callable[..., Any], int]] = [
    (steps, 1), (made_of_two, 2), (nested, 1), (with_outputs, 1), (branches, 1), (branch_in_loop, 1),
    (loop_in_branch, 1), (overwritten, 1), (sampled, 1), (no_turns, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "rows", "size"), [("never", 3, 17), ("always", 1, 1), ("always", 3, 17), ("always", 32, 64)]
)
@pytest.mark.parametrize(("program", "weights"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_results_are_equal(program: Callable[..., Any], weights: int, rows: int, size: int, policy: str) -> None:
    frozen = [values(size, size) for _ in range(weights)]
    x = jnp.abs(values(rows, size))
    found = halves(program, *frozen, x, frozen=tuple(range(weights)), policy=policy, again=[(*frozen, -x)])
    assert_equal(found)


@pytest.mark.parametrize(("program", "weights"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_prepacked_once_and_not_carried_plain(program: Callable[..., Any], weights: int) -> None:
    frozen = [values(64, 64) for _ in range(weights)]
    found = halves(program, *frozen, values(32, 64), frozen=tuple(range(weights)), policy="always")
    assert any(value.is_prepacked for value in found.split.preprocessed)
    inside = [*found.split.program.instructions]
    assert "hlo_dispatch.onednn.pack" not in [i.custom_call_target for i in inside]
    assert not found.split.frozen_inputs


def test_convolutions() -> None:
    def program(k, scale, x):
        def turn(i, h):
            numbers = ("NHWC", "HWIO", "NHWC")
            return jax.nn.relu(jax.lax.conv_general_dilated(h, k, (1, 1), "SAME", dimension_numbers=numbers) * scale)

        return jax.lax.fori_loop(0, 3, turn, x)

    found = halves(program, values(3, 3, 16, 16), values(16), values(1, 14, 14, 16), frozen=(0, 1), policy="always")
    assert_equal(found)
    assert any(value.is_prepacked for value in found.split.preprocessed)


def test_weights_that_change_in_the_loop_stay_in_it() -> None:
    def program(w, x):
        return jax.lax.fori_loop(0, 3, lambda i, s: (s[0] * 0.5, jnp.tanh(s[1] @ s[0])), (w, x))

    found = halves(program, values(17, 17), values(5, 17), policy="always")
    assert_equal(found)
    assert not any(value.is_prepacked for value in found.split.preprocessed)


def test_weights_that_the_condition_reads_are_carried() -> None:
    def program(w, x):
        return jax.lax.while_loop(lambda h: h.sum() < w.sum() - 1e6, lambda h: jnp.tanh(h @ w.T), x)

    assert_equal(halves(program, values(33, 33), values(5, 33), policy="always"))


def test_weights_that_are_returned() -> None:
    def program(w, x):
        return jax.lax.fori_loop(0, 3, lambda i, s: (s[0], jnp.tanh(s[1] @ s[0].T)), (w, x))

    assert_equal(halves(program, values(33, 33), values(5, 33), policy="always"))


@pytest.mark.parametrize("turns", [0, 3], ids=["branch", "loop"])
def test_what_is_returned_is_copied(turns: int) -> None:
    """XLA puts the results of all branches into one place, and those of a loop where its state is."""

    def branch(w, x):
        picked = jax.lax.cond(w[0, 0] > 0, lambda w: w @ w, lambda w: w - 1, w)
        return x @ jax.lax.fori_loop(0, 5, lambda _, h: jnp.tanh(h @ h), w) + picked

    def loop(w, x):
        return jax.lax.fori_loop(0, turns, lambda _, h: (jnp.cumsum(w @ w, 0), h[1] + h[0] @ x), (x, x))

    found = halves(loop if turns else branch, values(6, 6), values(6, 6), policy="never")
    assert_equal(found)
    for module in filter(None, (found.split.prologue, found.split.program)):
        entered = {i for o in module.instructions if o.opcode == "conditional"
                   for i in o.called_computation_ids}  # fmt: skip
        for computation in (c for c in module.proto.computations if c.id in entered):
            by_id = {instruction.id: instruction for instruction in computation.instructions}
            root = by_id[computation.root_id]
            assert "get-tuple-element" not in {by_id[operand].opcode for operand in root.operand_ids}


def test_what_only_makes_memory_larger_stays() -> None:
    def program(b, x):
        return jax.lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h + jnp.broadcast_to(b * 2, h.shape)), x)

    found = halves(program, values(64), values(500, 64))
    assert_equal(found)
    assert sum(value.shape.bytes for value in found.split.preprocessed) <= 256


def layers(w, b, x):
    def layer(h, of_layer):
        w, b = of_layer
        return jnp.tanh(h @ w + b), None

    return jax.lax.scan(layer, x, (w, b))[0]


@pytest.mark.parametrize(("count", "rows", "size"), [(2, 1, 1), (3, 5, 17), (6, 32, 64)])
@pytest.mark.parametrize("policy", ["never", "always"])
def test_a_scan_over_layers(count: int, rows: int, size: int, policy: str) -> None:
    weights, biases = values(count, size, size), values(count, size)
    found = halves(layers, weights, biases, values(rows, size), frozen=(0, 1), policy=policy)
    assert_equal(found)
    if policy == "always" and size > 1:
        # The originals are not carried along.
        assert any(value.is_prepacked for value in found.split.preprocessed)
        assert 0 not in found.split.frozen_inputs


def test_weights_out_of_the_middle_of_a_stack() -> None:
    """The counter begins elsewhere, and is out of bounds: the nearest is meant then."""

    def program(w, x):
        return jax.lax.fori_loop(
            -1, 5, lambda i, h: jnp.tanh(h @ jax.lax.dynamic_index_in_dim(w, i, keepdims=False)), x
        )

    found = halves(program, values(4, 33, 33), values(5, 33), policy="always")
    assert_equal(found)


def test_transposed_and_narrow_stacks() -> None:
    def program(w, x):
        def layer(h, w):
            return jnp.tanh(h @ w.T.astype("bfloat16")).astype("bfloat16"), h.sum()

        return jax.lax.scan(layer, x, w)

    found = halves(program, values(3, 64, 64), values(8, 64).astype("bfloat16"), policy="always")
    assert_equal(found, 0.05)


def test_constants_of_a_loop_that_reads_no_frozen_weights_stay_as_they_are() -> None:
    """Their reorders would stay in the loop, too."""
    constant = np.asarray(values(64, 64))

    def program(w, x):
        x = jax.lax.while_loop(lambda h: h.sum() > 1e9, lambda h: jnp.tanh(h @ constant), x)
        return x @ w

    found = halves(program, values(64, 64), values(32, 64))
    assert_equal(found)
    packed = {
        computation.name
        for computation in found.split.program.proto.computations
        for instruction in computation.instructions
        if instruction.custom_call_target == "hlo_dispatch.onednn.pack"
    }
    assert not packed
    assert any(value.is_prepacked for value in found.split.preprocessed)
