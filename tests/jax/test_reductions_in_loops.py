"""Reductions over many keys in a loop's body, which XLA writes as trees of three reductions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax, nn
from layers import random

from side_by_side import assert_agree, run_both

KEYS = 4096
"""More than 32 * 32: XLA reduces 32 elements at a time."""


def test_attention_to_many_keys_with_an_additive_mask_in_a_scan() -> None:
    def layer(x: Any, keys: Any, addend: Any) -> Any:
        query = x.reshape(1, 1, 2, 2, 8)
        scores = jnp.einsum("btkgh,bskh->bkgts", query, keys) / 2 + addend
        return x + jnp.einsum("bkgts,bskh->btkgh", nn.softmax(scores, -1), keys).reshape(x.shape)

    def program(x: Any, keys: Any, last: Any) -> Any:
        addend = jnp.where(jnp.arange(KEYS)[None, None, None, None] <= last, 0.0, -1e30)
        return lax.scan(lambda x, keys: (layer(x, keys, addend), None), x, keys)[0]

    both = run_both(program, random(1, 1, 32), random(3, 1, KEYS, 2, 8, seed=2), jnp.int32(70))
    assert_agree(both)
    assert [region.entry for region in both.report.dispatched] == ["attention"]
