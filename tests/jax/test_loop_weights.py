"""Weights that a long loop only reads, in a function that is jitted: they are prepacked in front of the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_dispatch
from hlo_dispatch.ir.kernel_call import is_kernel_call
from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.loop_weights import LEAST_TRIPS
from hlo_dispatch.passes.partition import prepacking
from matching import last_dumped
from processor import skip_emulated

pytestmark = pytest.mark.usefixtures("_compiled_quickly")

ROWS, WIDTH, TRIPS = 64, 256, 12


def product(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def steps(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, TRIPS, lambda _, x: product(x, w), x)


def steps_in_a_loop(x: Any, w: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, steps(c[1], w)), (0, x))[1]


def layers_in_a_loop(x: Any, w: Any) -> Any:
    """Each layer's weights are a slice, in each of many iterations of a loop around."""
    stack = jnp.stack([w, w * 0.5, w.T])
    return lax.fori_loop(0, TRIPS, lambda _, x: lax.scan(lambda x, w: (product(x, w), None), x, stack)[0], x)


def steps_in_a_branch(x: Any, w: Any) -> Any:
    return lax.cond(x[0, 0] > -9, steps, lambda x, w: x, x, w)


def a_branch_in_steps(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, TRIPS, lambda i, x: lax.cond(i % 2 == 0, product, lambda x, w: x + 1, x, w), x)


def trained(x: Any, w: Any) -> Any:
    """The weights are donated, and overwritten behind the loop."""
    return w - 1e-3 * jax.grad(lambda w: (steps_kept(x, w) ** 2).sum())(w)


def steps_kept(x: Any, w: Any) -> Any:
    return lax.scan(lambda x, _: (product(x, w), None), x, None, length=TRIPS)[0]


def batched(x: Any, w: Any) -> Any:
    return jax.vmap(lambda x: steps(x, w))(jnp.stack([x, x * 2]))


def few_steps(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, LEAST_TRIPS - 1, lambda _, x: product(x, w), x)


def layers(x: Any, w: Any) -> Any:
    """Each slice is read once."""
    stack = jnp.stack([w] * TRIPS)
    return lax.scan(lambda x, w: (product(x, w), None), x, stack)[0]


def changing(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, TRIPS, lambda _, c: (product(*c), c[1] * 0.99), (x, w))[0]


MOVED = [steps, steps_in_a_loop, layers_in_a_loop, steps_in_a_branch, trained, batched]
KEPT = [few_steps, layers, changing, a_branch_in_steps]


def arrays(dtype: str) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, WIDTH), dtype="float32")
    w = random.standard_normal((WIDTH, WIDTH), dtype="float32") / WIDTH**0.5
    return jnp.asarray(x, dtype), jnp.asarray(w, dtype)


@pytest.fixture
def rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Module]:
    """Compares a program with stock, and returns the module that the passes made."""
    monkeypatch.setenv("HLO_DISPATCH_DUMP_PASSES", str(tmp_path))

    def run(program: Callable[..., Any], dtype: str = "float32") -> Module:
        donated = 1 if program is trained else ()
        stock = jax.jit(lambda *args: program(*args))(*arrays(dtype))
        with hlo_dispatch.enabled(policy="always"):
            ours = jax.jit(lambda *args: program(*args), donate_argnums=donated)
            for _ in range(2):
                got = ours(*arrays(dtype))
                far = 2e-5 if dtype == "float32" else 0.05
                np.testing.assert_allclose(np.asarray(got, "float32"), np.asarray(stock, "float32"), rtol=far, atol=far)
        return last_dumped(tmp_path, "jit__lambda")

    return run


def reorders(module: Module) -> dict[str, int]:
    """Computation → its prepack calls."""
    return {
        computation.name: count
        for computation, _ in module.control_flow_computations()
        if (count := sum(is_kernel_call(i) and "pack" in i.custom_call_target for i in computation.instructions[:]))
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("program", MOVED, ids=lambda program: program.__name__)
def test_they_are_prepacked_in_front_of_the_loop(
    program: Callable[..., Any], dtype: str, rewritten: Callable[..., Module]
) -> None:
    if dtype == "bfloat16" and jax.__version_info__ >= (0, 11):
        # Older versions of XLA widen such a product themselves.
        skip_emulated("bf16", "a product that it widens in each call is not prepacked")
    module = rewritten(program, dtype)
    if program is layers_in_a_loop and dtype == "bfloat16" and jax.__version_info__ < (0, 11):
        pytest.skip("this XLA widens the stack in front of both loops")
    found = reorders(module)
    assert found
    loops = {
        module.computations[instruction.called_computation_ids[0]].name
        for computation in module.proto.computations
        for instruction in computation.instructions
        if instruction.opcode == "while"
    }
    assert program is steps_in_a_loop or loops.isdisjoint(found)


@pytest.mark.parametrize("program", KEPT, ids=lambda program: program.__name__)
def test_weights_that_are_read_rarely_or_change(program: Callable[..., Any], rewritten: Callable[..., Module]) -> None:
    assert not reorders(rewritten(program))


def test_constants_of_another_loop_stay_as_they_are(rewritten: Callable[..., Module]) -> None:
    """Nothing would take their reorders out of that loop."""
    constant = np.random.default_rng(1).standard_normal((WIDTH, WIDTH), dtype="float32") / WIDTH**0.5

    def beside(x: Any, w: Any) -> Any:
        other = lax.while_loop(lambda c: c[0] < x[0, 0] + 3, lambda c: (c[0] + 1, product(c[1], constant)), (0.0, x))[1]
        return jnp.stack([steps(x, w), other])

    assert sum(reorders(rewritten(beside)).values()) == 1


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch, rewritten: Callable[..., Module]) -> None:
    monkeypatch.setattr(prepacking, "MOST_IN_FRONT_OF_LOOPS", 1000)
    assert not reorders(rewritten(steps))
