"""Donated arguments of the frozen function's own jit, such as a KV cache: not copied in any call."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch

WIDTH, LENGTH = 48, 33
IS_KEPT = jax.__version_info__ >= (0, 11)
"""jaxlib 0.10.2 forgets what is donated where a pass returns a module: results are right, memory is not reused."""


def step(weights: Any, cache: Any, x: Any, place: Any) -> tuple[Any, Any]:
    """One row more in the cache, and something of all rows in it."""
    row = jnp.tanh(x @ weights["w"] + weights["b"])
    cache = {"rows": jax.lax.dynamic_update_slice(cache["rows"], row, (place, 0)), "count": cache["count"] + 1}
    return jax.nn.softmax(row @ cache["rows"].T) @ cache["rows"], cache


def weights() -> dict[str, Any]:
    random = np.random.default_rng()
    return {"w": jnp.asarray(random.standard_normal((WIDTH, WIDTH)) / 8, "f"), "b": jnp.zeros(WIDTH)}


def cache() -> dict[str, Any]:
    return {"rows": jnp.zeros((LENGTH, WIDTH)), "count": jnp.zeros(())}


def inputs(count: int) -> list[Any]:
    return [jnp.asarray(row, "f") for row in np.random.default_rng().standard_normal((count, 1, WIDTH))]


def run(function: Any, rows: list[Any], state: Any) -> tuple[list[np.ndarray], Any]:
    found = []
    for place, x in enumerate(rows):
        result, state = function(state, x, place)
        found.append(np.asarray(result))
    return found, state


@pytest.mark.parametrize("policy", ["always", "never"])
def test_a_cache_is_taken_over(policy: str, tmp_path: Path) -> None:
    p, rows = weights(), inputs(5)
    wanted, _ = run(partial(jax.jit(step), p), rows, cache())
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(jax.jit(step, donate_argnums=1), p)
        found, state = run(fast, rows, cache())
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
        fast.save(tmp_path / "step.frozen")
        for function in (fast, hlo_dispatch.load(tmp_path / "step.frozen")):
            before, taken = state["rows"].unsafe_buffer_pointer(), state
            _, state = function(state, rows[0], 0)
            assert taken["rows"].is_deleted() == taken["count"].is_deleted() == IS_KEPT
            assert (state["rows"].unsafe_buffer_pointer() == before) == IS_KEPT
        fast.update(jax.tree.map(lambda leaf: leaf * 0, p))
        result, _ = fast(state, rows[0], 0)
    assert np.isfinite(np.asarray(result)).all()


def test_what_its_jit_does_not_take_stays_the_callers() -> None:
    p, x = weights(), inputs(1)[0]
    plain, taken = cache(), cache()
    fast = hlo_dispatch.freeze(jax.jit(step), p)
    fast(plain, x, 0)
    assert not plain["rows"].is_deleted()
    # An argument that is used besides, and one of which a part is given, belong to the caller as well.
    kept = hlo_dispatch.freeze(lambda p, c, x: (jax.jit(step, donate_argnums=1)(p, c, x, 0), c["rows"].sum()), p)
    kept(taken, x)
    assert not taken["rows"].is_deleted()
    part = hlo_dispatch.freeze(lambda p, c, x: jax.jit(jnp.add, donate_argnums=0)(c["rows"], x) @ p["w"], p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, that some donated buffer was of no use
        part(taken, x)
    assert not taken["count"].is_deleted()
    assert not taken["rows"].is_deleted()


@pytest.mark.skipif(not IS_KEPT, reason="this jaxlib forgets what is donated")
def test_numpys_arrays_and_one_array_twice() -> None:
    """NumPy's memory is nobody's to take; an array that is given as two arguments is JAX's own error."""
    p, x = weights(), inputs(1)[0]
    fast = hlo_dispatch.freeze(jax.jit(step, donate_argnums=1), p)
    rows = np.ones((LENGTH, WIDTH), np.float32)
    fast({"rows": rows, "count": np.zeros((), np.float32)}, x, 3)
    assert (rows == 1).all()
    shared = {"rows": jnp.ones((LENGTH, WIDTH)), "count": jnp.zeros(())}
    two = hlo_dispatch.freeze(jax.jit(lambda p, a, b: (a["rows"] @ p["w"], b["rows"] + 1), donate_argnums=(1, 2)), p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, that some donated buffer was of no use
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="donate"):
            two(shared, shared)
