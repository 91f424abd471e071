"""Programs in half precision: kernels peel the converts, pads and roundings around XLA's own code."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from layers import conv, random

from side_by_side import assert_agree, run_both

HALVES = ("bfloat16", "float16")


@pytest.mark.parametrize("dtype", ["float32", *HALVES])
@pytest.mark.parametrize(("edges", "groups"), [(((0, 1), (0, 1)), 1), (((3, 3), (2, 0)), 1), (((1, 1), (1, 1)), 8)])
def test_zeros_around_a_convolution_are_its_padding(dtype: str, edges: tuple, groups: int) -> None:
    def program(x, w):
        return jax.nn.relu(conv(jnp.pad(x, ((0, 0), *edges, (0, 0))), w, 2, "VALID", groups))

    both = run_both(program, random(2, 13, 9, 8, dtype=dtype), random(3, 3, 8 // groups, 24, dtype=dtype))
    assert_agree(both)
    if dtype == "float16" and not both.report.dispatched:
        pytest.skip("this processor has no convolution in f16")
    (region,) = both.report.dispatched
    assert region.attributes["src_dims"] == [2, 8, 13, 9]
    assert region.attributes["padding_low"] == [low for low, _ in edges]
    assert both.text.count(" pad(") == 0


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_in_one_dimension(dtype: str) -> None:
    both = run_both(
        lambda x, w: conv(jnp.pad(x, ((0, 0), (1, 0), (0, 0))), w, 1, "VALID"),
        random(2, 17, 8, dtype=dtype),
        random(2, 8, 16, dtype=dtype),
    )
    assert_agree(both)
    assert both.report.dispatched[0].attributes["src_dims"] == [2, 8, 17]


@pytest.mark.parametrize(
    "padded",
    [
        lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=1),
        lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (1, 1))),
        lambda x: jax.lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), (0, 0, 1), (0, 0, 1), (0, 0, 0))),
        lambda x: jax.lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), (-1, 2, 0), (0, 0, 0), (0, 0, 0))),
        lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge"),
    ],
    ids=["ones", "channels", "spread", "cropped", "edge"],
)
def test_what_is_no_padding_of_a_window_stays(padded) -> None:
    def program(x, w):
        return conv(padded(x), jnp.resize(w, (3, 3, padded(x).shape[-1], 16)), 1, "VALID")

    assert_agree(run_both(program, random(1, 9, 8, 6, dtype="bfloat16"), random(3, 3, 8, 16, dtype="bfloat16")))


def test_a_padded_value_that_others_read_too() -> None:
    def program(x, w):
        wide = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return conv(wide, w, 1, "VALID"), wide * 2

    assert_agree(run_both(program, random(1, 9, 8, 6, dtype="bfloat16"), random(3, 3, 6, 16, dtype="bfloat16")))


@pytest.mark.parametrize("kind", ["max", "mean"])
def test_a_pooling_reads_and_writes_half_precision(kind: str) -> None:
    def program(x, w):
        x = jnp.pad(jax.nn.relu(conv(x, w)), ((0, 0), (1, 1), (1, 1), (0, 0)))
        window, steps = (1, 3, 3, 1), (1, 2, 2, 1)
        if kind == "max":
            return jax.lax.reduce_window(x, jnp.array(-jnp.inf, x.dtype), jax.lax.max, window, steps, "VALID")
        return jax.lax.reduce_window(x, jnp.zeros((), x.dtype), jax.lax.add, window, steps, "VALID") / 9

    both = run_both(program, random(1, 13, 11, 7, dtype="bfloat16"), random(3, 3, 7, 16, dtype="bfloat16"))
    assert_agree(both)
    found = {region.kernel: region.attributes for region in both.report.dispatched}
    if "onednn.convolution" not in found:
        pytest.skip("this processor has no kernels in bf16")
    pooling = found["onednn.pooling"]
    assert (pooling["src_type"], pooling["dst_type"]) == ("bf16", "bf16")
    assert both.sequences == [2]


@pytest.mark.parametrize("dtype", ["bfloat16"])
@pytest.mark.parametrize("also", [lambda wide: wide * 2, lambda wide: wide.astype(jnp.float32).sum(axis=3)])
def test_a_padded_value_that_is_pooled_and_that_others_read_too(dtype: str, also) -> None:
    def program(x):
        wide = jnp.pad(jax.nn.relu(x), ((0, 0), (1, 1), (1, 1), (0, 0)))
        window, steps = (1, 3, 3, 1), (1, 2, 2, 1)
        pooled = jax.lax.reduce_window(wide, jnp.array(-jnp.inf, x.dtype), jax.lax.max, window, steps, "VALID")
        return pooled, also(wide)

    assert_agree(run_both(program, random(1, 13, 11, 16, dtype=dtype)))


def test_a_pooling_in_single_precision_of_half_precision() -> None:
    def program(x):
        return jax.lax.reduce_window(x.astype(jnp.float32), 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    both = run_both(program, random(2, 8, 6, 16, dtype="bfloat16"))
    assert_agree(both, 1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_residuals_are_read_as_they_were_rounded(dtype: str) -> None:
    def program(x, v, w):
        for _ in range(3):
            x = jax.nn.relu(conv(jax.nn.relu(conv(x, v)), w) + x)
        return x

    both = run_both(
        program,
        random(1, 9, 7, 16, dtype=dtype),
        random(3, 3, 16, 24, dtype=dtype),
        random(1, 1, 24, 16, dtype=dtype),
    )
    assert_agree(both)
    if not both.report.dispatched:
        pytest.skip("this processor has no such convolution")
    assert both.sequences == [6]
    types = [r.attributes["post_op_0"]["type"] for r in both.report.dispatched if "post_op_1" in r.attributes]
    assert types == [{"bfloat16": "bf16", "float16": "f16"}[dtype]] * 3


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "after", [lambda y: y.sum(1), lambda y: y.max(1), lambda y: y.mean(-1)], ids=["sum", "max", "mean"]
)
def test_a_library_fusion_that_reads_a_product(dtype: str, after) -> None:
    """The product's result is widened for it, which XLA's library fusions do not do from f16: the compile failed."""
    x, w = random(4, 64, 128, dtype=dtype), random(128, 128, dtype=dtype) / 12
    assert_agree(run_both(lambda x, w: after(jnp.tanh(x @ w)), x, w))
