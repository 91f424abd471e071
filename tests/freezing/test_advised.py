"""Huge-page advice is in the steady-state program, never in the prologue."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from split_program import assert_equal, halves

from hlo_dispatch.ir.module import Module
from hlo_dispatch.passes.huge_page_advice import KERNEL

TARGET = f"hlo_dispatch.{KERNEL}"


def targets(half: Module | None) -> list[str]:
    assert half is not None
    return [i.custom_call_target for i in half.instructions]


def test_large_values_are_advised_in_the_program() -> None:
    random = np.random.default_rng(0)
    w = jnp.asarray(random.standard_normal((128, 128)) / 12, jnp.float32)
    x = jnp.asarray(random.standard_normal((65536, 128)), jnp.float32)

    def function(w, x):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ jnp.exp(w)) @ w), 0)

    found = halves(function, w, x, frozen=(0,), policy="always")
    assert targets(found.split.program).count(TARGET) == 1
    assert TARGET not in targets(found.split.prologue)
    assert_equal(found)
