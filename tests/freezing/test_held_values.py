"""What a frozen function holds stays as it is, whatever a program does to its copies: each call gives jit's result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_dispatch

ONES = jnp.ones((33, 5))


def grown(number: Any, value: Any) -> Any:
    return value * 1.5 + number


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda w, k: lax.dynamic_update_slice(jnp.cumsum(w, 0), jnp.full((1, 33), 1.0 * k), (k, 0)) @ ONES,
    "scatter": lambda w, k: jnp.cumsum(w, 0).at[jnp.arange(3) * k].add(2.0) @ ONES,
    "sort": lambda w, k: jnp.sort(jnp.cumsum(w, 0), 0) * k,
    "loop": lambda w, k: lax.fori_loop(0, k, grown, jnp.cumsum(w, 0)),
    "loop in a branch": lambda w, k: lax.cond(
        k > 2, lambda h: lax.fori_loop(0, k, grown, h), lambda h: h, jnp.cumsum(w, 0)
    ),
    "update in a branch": lambda w, k: lax.cond(k > 2, lambda h: h.at[k].set(3.0), lambda h: h, jnp.cumsum(w, 0)),
    "update in a loop": lambda w, k: lax.scan(
        lambda c, i: (c.at[i].add(1.0 * k), c[i].sum()), jnp.cumsum(w, 0), jnp.arange(5)
    ),
    "factorization": lambda w, k: jnp.linalg.cholesky(jnp.cumsum(w, 0).T @ jnp.cumsum(w, 0) + (k + 1.0) * jnp.eye(33)),
}


@pytest.mark.parametrize("policy", ["never", "always"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_begins_with_the_same_values(name: str, policy: str) -> None:
    program = PROGRAMS[name]
    w = jnp.asarray(np.random.default_rng().standard_normal((64, 33)), "float32")
    with hlo_dispatch.enabled(policy="never"):
        stock = jax.jit(program)
        wanted = [stock(w, jnp.int32(k)) for k in (1, 5, 0, 5)]
    with hlo_dispatch.enabled(policy=policy):
        fast = hlo_dispatch.freeze(program, w)
        got = [fast(jnp.int32(k)) for k in (1, 5, 0, 5)]
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)
