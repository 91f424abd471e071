"""Random poolings in a program: dispatched must equal stock."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from side_by_side import assert_agree, run_both

POOLS = {"max": nn.max_pool, "avg": nn.avg_pool}


@st.composite
def poolings(draw):
    spatial = draw(st.integers(1, 3))
    window = tuple(draw(st.integers(1, 3)) for _ in range(spatial))
    strides = tuple(draw(st.integers(1, 3)) for _ in range(spatial))
    sizes = tuple(draw(st.integers(k, 9)) for k in window)
    return window, strides, draw(st.sampled_from(("SAME", "VALID"))), sizes


@given(
    case=poolings(),
    kind=st.sampled_from(list(POOLS)),
    channels=st.sampled_from((1, 3, 16, 17)),
    batch=st.integers(1, 3),
    dtype=st.sampled_from(("float32", "bfloat16", "float16")),
    before=st.sampled_from(("nothing", "relu", "relu and pad", "pad")),
    after=st.sampled_from(("nothing", "bias", "tanh", "residual")),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_poolings(case, kind, channels, batch, dtype, before, after, seed):
    window, strides, padding, sizes = case
    random = np.random.default_rng(seed)

    def function(x, b):
        y = nn.relu(x) if "relu" in before else x
        if "pad" in before:
            y = jnp.pad(y, [(0, 0), *((1, 1) for _ in sizes), (0, 0)])
        y = POOLS[kind](y, window, strides, padding)
        return {
            "nothing": lambda: y,
            "bias": lambda: y + b,
            "tanh": lambda: jnp.tanh(y),
            "residual": lambda: y + jax.lax.slice(jnp.tile(b, y.size), (0,), (y.size,)).reshape(y.shape),
        }[after]()

    x = random.standard_normal((batch, *sizes, channels)).astype(jnp.dtype(dtype))
    b = random.standard_normal(channels).astype(jnp.dtype(dtype))
    assert_agree(run_both(function, x, b))


def test_an_infinity_is_a_maximum():
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 16)).astype(np.float32)
    x[0, 3, 3], x[0, 6, 6] = np.inf, -np.inf
    both = run_both(lambda x: nn.max_pool(x, (3, 3), (2, 2), "SAME"), x)
    assert both.text.count("hlo_dispatch.onednn.pooling") == 1
    assert_agree(both, 0.0)


def test_a_maximum_does_not_see_a_nan():
    """oneDNN's meaning, as of its relu and its clip; dispatch/README.md says so."""
    x = np.arange(9 * 16, dtype=np.float32).reshape(1, 3, 3, 16)
    x[0, 1, 1] = np.nan
    both = run_both(lambda x: nn.max_pool(x, (3, 3), (1, 1), "SAME"), x)
    assert np.isnan(both.stock[0]).all()
    assert np.isfinite(both.dispatched[0]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rows", [64, 65, 130])
def test_a_reduction_to_the_maximum_is_no_pooling(rows: int, dtype: str) -> None:
    """XLA reduces 32 rows at a time, by a reduce-window; pooling would lose NaN and -inf."""
    x = np.random.default_rng(rows).standard_normal((rows, 5))
    x[rows // 2, 1], x[:, 3] = np.nan, -np.inf
    both = run_both(lambda x: jnp.max(x, 0), x.astype(jnp.dtype(dtype)))
    stock, dispatched = (arrays[0].astype(np.float32) for arrays in (both.stock, both.dispatched))
    np.testing.assert_array_equal(dispatched, stock)


def test_windows_of_minus_infinity_give_the_lowest_number():
    """oneDNN starts from there; dispatch/README.md says so."""
    x = np.full((1, 8, 8, 16), -np.inf, np.float32)
    both = run_both(lambda x: nn.max_pool(x, (3, 3), (2, 2), "SAME"), x)
    assert (both.stock[0] == -np.inf).all()
    assert (both.dispatched[0] == np.finfo(np.float32).min).all()
