"""Steps of training, SGD included, of a residual and of a depthwise-separable network: bench/training.py's."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.bench.training import networks, step
from hlo_dispatch.demo.timing import interleaved
from side_by_side import assert_close, run_both

NETWORKS = networks()
IMAGES = jnp.asarray(np.random.default_rng(3).standard_normal((8, 64, 64, 3)), jnp.float32)
LABELS = jax.nn.one_hot(jnp.arange(8), 10)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_convolution_of_a_step(name: str) -> None:
    network, parameters = NETWORKS[name]
    both = run_both(step(network), parameters, IMAGES, LABELS)
    assert not re.search(r" convolution\(", both.text)
    assert not [region for region in both.report.left if region.opcode == "convolution"]
    for number, (stock, dispatched) in enumerate(zip(both.stock, both.dispatched, strict=True)):
        assert_close(dispatched / np.abs(stock).max(), stock / np.abs(stock).max(), 2e-5, f"parameter {number}")


def test_forward_convolutions_take_their_activations() -> None:
    network, parameters = NETWORKS["depthwise-separable"]
    formulas = [region.formula for region in run_both(step(network), parameters, IMAGES, LABELS).report.dispatched]
    # Two in each of five blocks, and the stem's.
    assert formulas.count("clip(0, 6)[conv(x, w) + b]") == 10
    assert formulas.count("relu(conv(x, w))") == 1


@pytest.mark.timing
def test_a_depthwise_step_is_at_least_twice_as_fast() -> None:
    """XLA's gradient of a depthwise convolution is a dense one: 12 to 20 times slower, so 2 is safe on any day."""
    network, parameters = NETWORKS["depthwise-separable"]
    arguments = (parameters, IMAGES, LABELS)
    stock = jax.jit(lambda *inputs: step(network)(*inputs)).lower(*arguments).compile()
    with hlo_dispatch.enabled(policy="heuristic"):
        dispatched = jax.jit(lambda *inputs: step(network)(*inputs)).lower(*arguments).compile()

    def run(compiled):
        jax.block_until_ready(compiled(*arguments))

    times = interleaved({"stock": partial(run, stock), "dispatched": partial(run, dispatched)}, seconds=1.5)
    assert times["stock"].median >= 2 * times["dispatched"].median
