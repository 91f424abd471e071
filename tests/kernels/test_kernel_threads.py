"""One executable, many threads at once: every execution has its own memory objects and stream."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from calls import Window, convolution_call, convolve, random_values, tensor

pytestmark = pytest.mark.any_python


@pytest.mark.parametrize("groups", [1, 32])
def test_concurrent_executions_do_not_share_anything(groups):
    generator = np.random.default_rng(0)
    window = Window((1, 1), (0, 0), (1, 1), (1, 1))
    if groups == 1:
        weights = tensor(random_values(generator, [32, 32, 3, 3]), [2, 3, 1, 0])
    else:
        weights = tensor(random_values(generator, [32, 1, 1, 3, 3]), [3, 4, 2, 0, 1])
    inputs = [random_values(generator, [1, 32, 12, 12]) for _ in range(8)]
    call = convolution_call(tensor(inputs[0], [0, 2, 3, 1]), weights, window, None, [0, 2, 3, 1]).eltwise("relu")
    function = call.compiled()
    memories = [tensor(values, [0, 2, 3, 1]).memory for values in inputs]
    expected = [np.maximum(convolve(values, weights.values, window), 0) for values in inputs]

    def work(index: int) -> list[np.ndarray]:
        return [np.asarray(function(memories[index], weights.memory)) for _ in range(60)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    for index, repeated in enumerate(results):
        first = repeated[0]
        np.testing.assert_allclose(first.transpose(0, 3, 1, 2), expected[index], atol=1e-4, rtol=0)
        for again in repeated[1:]:
            np.testing.assert_array_equal(again, first)


def test_concurrent_compilations():
    generator = np.random.default_rng(1)
    window = Window((1, 1), (0, 0), (1, 1), (1, 1))

    def work(channels: int) -> None:
        values, weights = random_values(generator_of(channels), [1, channels, 6, 6]), None
        weights = tensor(random_values(generator_of(channels), [channels, channels, 3, 3]), [2, 3, 1, 0])
        call = convolution_call(tensor(values, [0, 2, 3, 1]), weights, window, None, [0, 2, 3, 1])
        np.testing.assert_allclose(call.run(), convolve(values, weights.values, window), atol=1e-3, rtol=0)

    def generator_of(seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, generator.integers(1, 40, 16).tolist()))
