"""Programs in f16, which processors without such arithmetic compute in f32: no further from float64 than stock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from layers import conv, random

import hlo_dispatch
from side_by_side import assert_close, run_both

ROUNDING = 2.0**-11


def half(*dims: int) -> Any:
    return random(*dims, dtype="float16")


def check(program: Any, *arguments: Any, kernels: set[str]) -> None:
    """By these kernels; as near to the program in f32 as stock is, or as rounding once leaves it."""
    both = run_both(program, *arguments)
    assert kernels <= {region.kernel for region in both.report.dispatched}
    wide = jax.tree.map(lambda a: np.asarray(a, np.float32) if a.dtype == np.float16 else a, arguments)
    exact = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(jax.jit(program)(*wide))]
    for true, stock, ours in zip(exact, both.stock, both.dispatched, strict=True):
        assert ours.dtype == np.float16
        off, of_stock = (np.abs(found.astype(np.float64) - true).max() for found in (ours, stock))
        assert off <= max(of_stock, 4 * ROUNDING * np.abs(true).max())  # NaN is no such number


def dense(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.relu(x @ w + b)


def test_products_with_what_follows() -> None:
    check(dense, half(33, 40), half(40, 70), half(70), kernels={"onednn.matmul"})
    check(lambda x, w: jax.nn.gelu(x @ w.T), half(9, 40), half(24, 40), kernels={"onednn.matmul"})
    check(lambda a, b: jnp.einsum("bhqd,bkhd->bhqk", a, b), half(2, 3, 9, 8), half(2, 7, 3, 8),
          kernels={"onednn.matmul"})  # fmt: skip


def test_convolutions_with_what_follows() -> None:
    program = lambda x, w, b: jax.nn.relu(conv(x, w, 2) + b)  # noqa: E731
    check(program, half(2, 13, 9, 8), half(3, 3, 8, 24), half(24), kernels={"onednn.convolution"})
    first = lambda x, w: lax.conv(x, w, (1, 1), "SAME")  # noqa: E731
    check(first, half(2, 8, 13, 9), half(24, 8, 3, 3), kernels={"onednn.convolution"})
    depthwise = lambda x, w: conv(x, w, 1, "SAME", 16)  # noqa: E731
    check(depthwise, half(1, 9, 8, 16), half(3, 3, 1, 16), kernels={"onednn.convolution"})


def test_gradients() -> None:
    def gradients(x: Any, w: Any) -> Any:
        return jax.grad(lambda x, w: (conv(x, w, 2).astype(jnp.float32) ** 2).sum(), (0, 1))(x, w)

    check(gradients, half(1, 9, 8, 5), half(3, 3, 5, 6), kernels={"onednn.convolution"})


def test_in_loops_under_conditions_mapped_and_donated() -> None:
    def program(x: Any, w: Any) -> Any:
        steps = lax.scan(lambda c, _: (jax.nn.relu(c @ w), c[0, 0]), x, None, length=3)[0]
        chosen = lax.cond(x[0, 0] > 100, lambda: x, lambda: jax.vmap(lambda row: row @ w)(x))
        return steps, chosen

    check(program, half(16, 24), half(24, 24) * 0.2, kernels={"onednn.matmul"})
    both = run_both(lambda x, w: x @ w, half(24, 24), half(24, 24), donate_argnums=0)
    assert_close(both.dispatched[0], both.stock[0])


def test_call_groups() -> None:
    """Values between two calls are rounded as stock rounds them."""

    def program(x: Any, v: Any, w: Any) -> Any:
        for _ in range(2):
            x = jax.nn.relu(conv(jax.nn.relu(conv(x, v)), w) + x)
        return x

    check(program, half(1, 9, 7, 16), half(3, 3, 16, 24), half(1, 1, 24, 16), kernels={"onednn.convolution"})


def test_frozen_and_from_several_threads() -> None:
    w, b, inputs = half(40, 70), half(70), [half(33, 40) * number for number in (1, 2, 3)]
    wanted = [np.asarray(jax.jit(dense)(x, w, b)) for x in inputs]
    with hlo_dispatch.enabled(policy="always"):
        frozen = hlo_dispatch.freeze(lambda weights, x: dense(x, *weights), (w, b))
        alone = [np.asarray(frozen(x)) for x in inputs]
    for found, stock in zip(alone, wanted, strict=True):
        assert_close(found, stock)
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda x: [np.asarray(frozen(x)) for _ in range(5)], inputs)
        for several, one in zip(found, alone, strict=True):
            for again in several:
                np.testing.assert_array_equal(again, one)
