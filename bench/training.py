"""One step of training, gradients and SGD update included: stock XLA against dispatched.

    python -m bench.training [--seconds 3]

Two small convolutional networks on 64 x 64 images, batch 8: one of residual blocks, one of depthwise-separable
ones. Prints how many anchors were dispatched, the largest difference of an updated parameter (relative to that
parameter's largest value), both times and their ratio.
"""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

import hlo_dispatch
from hlo_dispatch.bench.header import header
from hlo_dispatch.demo.timing import interleaved

_RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> jax.Array:
    """He-initialised weights, the last dimension being the outputs."""
    return jnp.asarray(_RANDOM.standard_normal(shape) * np.sqrt(2 / np.prod(shape[:-1])), jnp.float32)


def convolve(x, w, stride: int = 1, groups: int = 1):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def separable(parameters: dict, x: jax.Array) -> jax.Array:
    """Logits of five inverted residual blocks."""
    x = nn.relu(convolve(x, parameters["stem"], 2))
    for (expand, b, depthwise, c, project, d), stride in zip(parameters["blocks"], (1, 2, 1, 2, 1), strict=True):
        y = nn.relu6(convolve(x, expand) + b)
        y = nn.relu6(convolve(y, depthwise, stride, y.shape[-1]) + c)
        y = convolve(y, project) + d
        x = y + x if y.shape == x.shape else y
    return x.mean((1, 2)) @ parameters["head"]


def residual(parameters: dict, x: jax.Array) -> jax.Array:
    """Logits of three residual blocks."""
    x = nn.relu(convolve(x, parameters["stem"], 2))
    for first, b, second in parameters["blocks"]:
        x = nn.relu(convolve(nn.relu(convolve(x, first) + b), second) + x)
    return x.mean((1, 2)) @ parameters["head"]


def inverted(inputs: int, outputs: int, expansion: int = 4) -> tuple:
    wide = inputs * expansion
    return (
        weights(1, 1, inputs, wide), jnp.zeros(wide), weights(3, 3, 1, wide), jnp.zeros(wide),
        weights(1, 1, wide, outputs), jnp.zeros(outputs),
    )  # fmt: skip


def networks() -> dict[str, tuple[Callable, dict]]:
    blocks = [inverted(*channels) for channels in ((16, 16), (16, 24), (24, 24), (24, 32), (32, 32))]
    plain = [(weights(3, 3, 32, 32), jnp.zeros(32), weights(3, 3, 32, 32)) for _ in range(3)]
    return {
        "depthwise-separable": (separable, {"stem": weights(3, 3, 3, 16), "blocks": blocks, "head": weights(32, 10)}),
        "residual": (residual, {"stem": weights(3, 3, 3, 32), "blocks": plain, "head": weights(32, 10)}),
    }


def step(network: Callable) -> Callable:
    """(parameters, images, one-hot labels) → parameters after one step of SGD."""

    def loss(parameters, images, labels):
        return -jnp.mean(jnp.sum(nn.log_softmax(network(parameters, images)) * labels, -1))

    def update(parameters, images, labels):
        gradients = jax.grad(loss)(parameters, images, labels)
        return jax.tree.map(lambda value, gradient: value - 0.1 * gradient, parameters, gradients)

    return update


def _run(compiled: Callable, arguments: tuple) -> None:
    jax.block_until_ready(compiled(*arguments))


def main() -> None:
    """Measure and print both networks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3, help="measuring time of each network")
    seconds = parser.parse_args().seconds
    print("\n".join(header()))
    images = jnp.asarray(_RANDOM.standard_normal((8, 64, 64, 3)), jnp.float32)
    labels = nn.one_hot(jnp.arange(8), 10)
    for name, (network, parameters) in networks().items():
        arguments = (parameters, images, labels)
        stock = jax.jit(step(network)).lower(*arguments).compile()
        with hlo_dispatch.enabled():
            dispatched = jax.jit(step(network)).lower(*arguments).compile()
        report = hlo_dispatch.reports()[-1]
        pairs = zip(jax.tree.leaves(stock(*arguments)), jax.tree.leaves(dispatched(*arguments)), strict=True)
        difference = max(float(jnp.abs(a - b).max() / jnp.abs(a).max()) for a, b in pairs)
        runs = {"stock": stock, "dispatched": dispatched}
        calls = {way: partial(_run, run, arguments) for way, run in runs.items()}
        times = {way: timing.median * 1e3 for way, timing in interleaved(calls, seconds=seconds).items()}
        anchors = f"{len(report.dispatched)} of {len(report.candidates)} anchors"
        print(
            f"{name}: {anchors} dispatched, largest difference {difference:.1e}; stock {times['stock']:.2f} ms, "
            f"dispatched {times['dispatched']:.2f} ms, {times['stock'] / times['dispatched']:.1f}x"
        )


if __name__ == "__main__":
    main()
