"""Reading a module and writing it again changes nothing: XLA accepts it, and results are the same bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import xla

from hlo_dispatch.ir.module import Module


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype("float32")


def convolve(x, w, stride=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def residual_network(x, first, second, shortcut, scale, head):
    y = jax.nn.relu(convolve(x, first, 2) * scale + 1)
    y = jax.nn.relu(convolve(y, second) + convolve(x, shortcut, 2))
    return jax.nn.softmax(
        jax.lax.reduce_window(y, 0.0, jax.lax.add, (1, 4, 4, 1), (1, 4, 4, 1), "VALID")[:, 0, 0] @ head
    )


def encoder_layer(x, wq, wk, wv, wo, up, down):
    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)

    q, k, v = ((norm(x) @ w).reshape(*x.shape[:2], 4, -1) for w in (wq, wk, wv))
    weights = jax.nn.softmax(jnp.einsum("bnhd,bmhd->bhnm", q, k) / 3)
    x = x + jnp.einsum("bhnm,bmhd->bnhd", weights, v).reshape(x.shape) @ wo
    return x + jax.nn.gelu(norm(x) @ up) @ down


def training_step(weights, bias, x, y):
    def loss(weights, bias):
        return jnp.mean((jnp.tanh(x @ weights + bias) - y) ** 2)

    value, gradients = jax.value_and_grad(loss, (0, 1))(weights, bias)
    return weights - 0.1 * gradients[0], bias - 0.1 * gradients[1], value


def loop(x, w):
    return jax.lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, jnp.tanh(s[1] @ w)), (0, x))


def branches(x, w):
    return jax.lax.switch(x[0, 0].astype(int) + 1, [lambda: x @ w, lambda: jnp.sort(x), lambda: -x])


def strings_of_operations(x, w):
    keys = jax.random.key(3)
    return (
        jnp.fft.fft(x).real,
        jnp.linalg.cholesky(w @ w.T + jnp.eye(16)),
        jax.random.normal(keys, (4,)),
        jnp.argsort(x),
    )


S = values(16, 16, seed=1)
PROGRAMS = {
    "residual network": (
        residual_network,
        (values(2, 8, 8, 4), values(3, 3, 4, 8), values(3, 3, 8, 8), values(1, 1, 4, 8), values(8), values(8, 5)),
        (),
    ),
    "encoder layer": (
        encoder_layer,
        (values(2, 8, 16), *(values(16, 16, seed=n) for n in range(4)), values(16, 64), values(64, 16)),
        (),
    ),
    "training step, donated": (training_step, (S, values(16), values(8, 16), values(8, 16, seed=2)), (0, 1)),
    "while, donated": (loop, (S, values(16, 16)), (0,)),
    "conditional": (branches, (S, values(16, 16)), ()),
    "library calls": (strings_of_operations, (S, values(16, 16)), ()),
}


def parsed_and_written(serialized: bytes) -> bytes:
    return Module.from_bytes(serialized).to_bytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits(name) -> None:
    """Against stock, and against a callback that gives back the very bytes it got."""
    program, arguments, donated = PROGRAMS[name]
    runs, seen = [], []

    def same(serialized: bytes) -> bytes:
        seen.append(serialized)
        return serialized

    for callback in (lambda _: None, same, parsed_and_written):
        xla.register_hlo_module_transformation(callback, name="identity", platforms="cpu")
        try:
            jitted = jax.jit(lambda *inputs: program(*inputs), donate_argnums=donated)
            compiled = jitted.lower(*arguments).compile()
        finally:
            xla.clear_hlo_module_transformation("identity", platforms="cpu")
        fresh = [jax.device_put(argument.copy()) for argument in arguments]
        results = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*fresh))]
        runs.append((compiled.as_text(), [leaf.is_deleted() for leaf in fresh], results))
    (_, _, stock), given_back, ours = runs
    for wanted, got in zip(stock, ours[2], strict=True):
        np.testing.assert_array_equal(got, wanted)
    # jaxlib 0.10.2 forgets donation for any module that a callback returns, hence not against stock.
    assert ours[:2] == given_back[:2]
    # What we declare and what we do not declare both survive.
    assert Module.from_bytes(parsed_and_written(seen[0])).proto == Module.from_bytes(seen[0]).proto
    assert sorted(parsed_and_written(seen[0])) == sorted(seen[0])
