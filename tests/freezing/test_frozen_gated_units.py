"""Gated unit splitting: one product becomes two whose kernels end in the gate; other halved values stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.freezing import tracing
from side_by_side import assert_close

TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2}


def array(*shape: int, dtype: str = "float32") -> jax.Array:
    """New ones every time; as small as weights are that keep a product's size."""
    values = np.random.default_rng().standard_normal(shape)
    return jnp.asarray(values / math.sqrt(shape[0] if len(shape) == 2 else 1), dtype)


def double(value: jax.Array) -> np.ndarray:
    return np.asarray(value, np.float64)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def products(fast: Any) -> list[tuple[str, str]]:
    """Formula and shape of every product that a kernel computes, in order."""
    (program,) = fast.report.programs
    return [(r.formula, r.shape) for r in program.dispatched.dispatched if r.opcode == "dot"]


def split(h: jax.Array) -> list[jax.Array]:
    return jnp.split(h, 2, axis=-1)


def sliced(h: jax.Array) -> tuple[jax.Array, jax.Array]:
    half = h.shape[-1] // 2
    return h[..., :half], h[..., half:]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("halve", [split, sliced])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 33, 7), (17, 64, 31), (2, 9, 48, 80)], ids=str)
def test_halves_are_separate_products(shape: tuple[int, ...], halve: Callable, dtype: str) -> None:
    *rows, inner, half = shape
    w, b, x = array(inner, 2 * half, dtype=dtype), array(2 * half, dtype=dtype), array(*rows, inner, dtype=dtype)

    def unit(w: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
        value, gate = halve(x @ w + b)
        return value * jax.nn.gelu(gate, approximate=False)

    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(unit, w, b)
        got = fast(x)
    h = double(x) @ double(w) + double(b)
    assert_close(double(got), h[..., :half] * gelu(h[..., half:]), TOLERANCE[dtype])
    found = products(fast)
    # XLA multiplies single numbers without a product.
    assert len(found) == (2 if inner > 1 else 0)
    assert all(str(half) in size and str(2 * half) not in size for _, size in found)


def test_kernels_end_in_the_gate() -> None:
    w, x = array(64, 192), array(40, 64)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(lambda w, x: (lambda a, g: jax.nn.silu(a) * g)(*split(x @ w)), w)
        got = fast(x)
    h = double(x) @ double(w)
    assert_close(double(got), silu(h[:, :96]) * h[:, 96:], 1e-5)
    # Either may be the one that comes last, and multiplies.
    texts = [formula for formula, _ in products(fast)]
    assert len(texts) == 2
    assert sum("swish(1)" in text for text in texts) == sum(text.endswith("· r1") for text in texts) == 1


def test_inside_of_jitted_functions_and_layers() -> None:
    """As frameworks write it: layers are functions, and the whole is jitted."""
    weights = [(array(24, 64), array(64), array(32, 24)) for _ in range(3)]
    project = jax.jit(lambda x, w, b: jnp.matmul(x, w) + b)

    @jax.jit
    def network(weights: list, x: jax.Array) -> jax.Array:
        for w, b, out in weights:
            value, gate = split(project(x, w, b))
            x = x + (value * jax.nn.silu(gate)) @ out
        return x

    x = array(5, 24)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(network, weights)
        got = fast(x)
    wanted = double(x)
    for w, b, out in weights:
        h = wanted @ double(w) + double(b)
        wanted = wanted + h[:, :32] * silu(h[:, 32:]) @ double(out)
    assert_close(double(got), wanted, 1e-5)
    assert len(products(fast)) == 9


def test_new_weights() -> None:
    x, first, second = array(8, 16), array(16, 48), array(16, 48)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(lambda w, x: (lambda a, g: a * jnp.tanh(g))(*split(x @ w)), first)
        fast(x)
        fast.update(second)
        got = fast(x)
    h = double(x) @ double(second)
    assert_close(double(got), h[:, :24] * np.tanh(h[:, 24:]), 1e-5)


def test_one_column_under_a_bias_of_many() -> None:
    w, b, x = array(24, 1), array(12), array(18, 24)

    def unit(w: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
        return math.prod(split(x @ w + b))

    with hlo_dispatch.enabled(policy="always"):
        got = hlo_dispatch.freeze(unit, w, b)(x)
    h = double(x) @ double(w) + double(b)
    assert_close(double(got), h[:, :6] * h[:, 6:], 1e-5)


def test_where_parting_fails_the_product_stays_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise AssertionError("no halves")

    monkeypatch.setattr(tracing, "with_split_products", broken)
    monkeypatch.delenv("HLO_DISPATCH_STRICT", raising=False)
    w, x = array(16, 48), array(8, 16)
    before = hlo_dispatch.statistics().failures
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(lambda w, x: math.prod(split(x @ w)), w)
        got = fast(x)
    h = double(x) @ double(w)
    assert_close(double(got), h[:, :24] * h[:, 24:], 1e-5)
    assert len(products(fast)) == 1
    assert hlo_dispatch.statistics().failures == before + 1
    assert "no halves" in caplog.text


@pytest.mark.parametrize("policy", ["never", "heuristic", "measure"])
def test_whatever_the_policy(policy: str) -> None:
    w, x = array(32, 64), array(16, 32)
    with hlo_dispatch.enabled(policy=policy):
        got = hlo_dispatch.freeze(lambda w, x: (lambda a, g: a * jnp.tanh(g))(*split(x @ w)), w)(x)
    h = double(x) @ double(w)
    assert_close(double(got), h[:, :32] * np.tanh(h[:, 32:]), 1e-5)


Program = Callable[[jax.Array, jax.Array], Any]
WHOLE: dict[str, Program] = {
    "added": lambda w, x: (lambda a, g: a + jnp.tanh(g))(*split(x @ w)),
    "the product is a result": lambda w, x: (lambda h: (h, split(h)[0] * split(h)[1]))(x @ w),
    "the product is a result ahead of its bias": lambda w, x: (lambda h: (h, math.prod(split(h + 1.0))))(x @ w),
    "something else reads the product": lambda w, x: (lambda h: (lambda a, g: a * g + h.sum())(*split(h)))(x @ w),
    "thirds": lambda w, x: (lambda q, k, v: q * k * v)(*jnp.split(x @ w, 3, axis=-1)),
    "rows": lambda w, x: (lambda a, g: a * g)(*jnp.split(x @ w, 2, axis=0)),
    "the weights depend on the argument": lambda w, x: (lambda a, g: a * g)(*split(x @ (w * x.sum()))),
    "the sum is an argument's": lambda w, x: (lambda a, g: a * g)(*split(x @ w + x[:, :1])),
    "one half": lambda w, x: (lambda a, _: a * a)(*split(x @ w)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_stays_whole(name: str) -> None:
    w, x = array(24, 96), array(18, 24)
    with hlo_dispatch.enabled(policy="always"):
        fast = hlo_dispatch.freeze(WHOLE[name], w)
        got = fast(x)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(WHOLE[name])(w, x)), strict=True):
        assert_close(np.asarray(one), np.asarray(other), 1e-5)
    assert len(products(fast)) == 1
