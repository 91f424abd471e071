"""Loops of one row, which the newest XLA runs as small calls: dispatched, they are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers import random

import hlo_dispatch
from side_by_side import assert_agree, run_both

ATTRIBUTE = "xla_cpu_small_call"
SIZE = 24


def lstm(w: Any, u: Any, b: Any, state: Any, x: Any) -> Any:
    hidden, cell = state
    gates = x @ w.T + hidden @ u.T + b
    i, f, g, o = jnp.split(gates, 4, -1)
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(cell), cell


def zeros() -> Any:
    return jnp.zeros((1, SIZE)), jnp.zeros((1, SIZE))


def scanned(w: Any, u: Any, b: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        state = lstm(w, u, b, state, x)
        return state, state[0]

    return jax.lax.scan(step, zeros(), x)


def until_large(w: Any, u: Any, b: Any, x: Any) -> Any:
    def step(state: Any) -> Any:
        return lstm(w, u, b, state[:2], x[0]), state[2] + 1

    def looped(state: Any) -> Any:
        (hidden, cell), count = step(state)
        return hidden, cell, count

    return jax.lax.while_loop(lambda s: (s[2] < 9) & (jnp.sum(s[0]) < 1e6), looped, (*zeros(), 0))


def by_branches(w: Any, u: Any, b: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        state = jax.lax.cond(x[0, 0] > 0, lambda s: lstm(w, u, b, s, x), lambda s: (s[0] * 2, s[1]), state)
        return state, state[0]

    return jax.lax.scan(step, zeros(), x)


def of_sequences(w: Any, u: Any, b: Any, x: Any) -> Any:
    """A loop in a loop."""

    def sequence(state: Any, _: Any) -> Any:
        return jax.lax.scan(lambda s, x: (lstm(w, u, b, s, x), s[0]), state, x)

    return jax.lax.scan(sequence, zeros(), None, length=3)


@pytest.fixture(scope="module")
def arguments() -> tuple[np.ndarray, ...]:
    return (
        random(4 * SIZE, SIZE) / 5,
        random(4 * SIZE, SIZE, seed=2) / 5,
        random(4 * SIZE, seed=3),
        random(7, 1, SIZE, seed=4),
    )


@pytest.mark.parametrize("program", [scanned, until_large, by_branches, of_sequences], ids=lambda f: f.__name__)
def test_a_recurrent_loop_of_one_row(program: Callable, arguments: tuple[np.ndarray, ...]) -> None:
    both = run_both(program, *arguments)
    assert_agree(both)
    entries = [region.entry for region in both.report.dispatched]
    assert entries == ["recurrent"] if program is scanned else entries.count("dot") >= 2
    assert ATTRIBUTE not in both.text


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="older releases have no small calls")
def test_stock_is_a_small_call(arguments: tuple[np.ndarray, ...]) -> None:
    assert ATTRIBUTE in run_both(scanned, *arguments, policy="heuristic").text


def test_a_frozen_recurrent_loop(arguments: tuple[np.ndarray, ...]) -> None:
    """Its weights are repacked outside of the call that was small."""
    *weights, x = arguments
    with hlo_dispatch.enabled(policy="never"):
        expected = jax.jit(lambda *a: scanned(*a))(*arguments)
    frozen = hlo_dispatch.freeze(lambda p, x: scanned(*p, x), weights)
    with hlo_dispatch.enabled(policy="always"):
        results = frozen(x)
    report = frozen.report.programs[0].dispatched
    assert report is not None
    assert [region.entry for region in report.dispatched] == ["recurrent"]
    for got, wanted in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_loop_of_less_work_than_a_call_stays_as_xla_made_it(arguments: tuple[np.ndarray, ...]) -> None:
    both = run_both(scanned, *arguments, policy="heuristic")
    assert not both.report.dispatched
