"""Overhead of a call of a frozen function."""

from __future__ import annotations

import cProfile
import pstats
import timeit
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlo_dispatch

CALLS = 2000
X, Y = jnp.ones(8), jnp.ones(9)


def seconds(call: Callable[[], Any]) -> float:
    call()
    return min(timeit.repeat(call, number=CALLS, repeat=9)) / CALLS


@pytest.mark.timing
def test_a_call_costs_as_much_as_jit() -> None:
    weights = [jnp.ones(8) for _ in range(50)]
    model = lambda weights, x: sum(weights, x)  # noqa: E731
    fast, jitted = hlo_dispatch.freeze(model, weights), jax.jit(model)
    own, jits = seconds(lambda: fast(X)), seconds(lambda: jitted(weights, X))
    # Without the short way it would be some hundred microseconds more.
    assert own < 2 * jits + 20e-6


@pytest.mark.timing
def test_alternating_shapes_cost_microseconds() -> None:
    weights = jnp.ones(())
    model = lambda weights, x: x + weights  # noqa: E731
    fast, jitted = hlo_dispatch.freeze(model, weights), jax.jit(model)
    own = seconds(lambda: (fast(X), fast(Y)))
    jits = seconds(lambda: (jitted(weights, X), jitted(weights, Y)))
    assert own - jits < 2 * 50e-6


def test_a_call_runs_no_python_of_jax_after_its_caches_were_cleared() -> None:
    fast = hlo_dispatch.freeze(lambda weights, x: x + sum(weights), [jnp.ones(8) for _ in range(50)])
    fast(X)
    jax.clear_caches()
    fast(X)
    profile = cProfile.Profile()
    profile.runcall(fast, X)
    called = {function for function, *_ in pstats.Stats(profile).stats if "/jax/" in function}
    assert len(called) < 5, called
