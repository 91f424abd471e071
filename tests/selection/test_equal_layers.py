"""Measurement requests of unrolled models: equal layers ask once, and what takes most time is asked first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlo_dispatch.api import pipeline
from hlo_dispatch.autotune.measurement_requests import MeasurementRequest
from hlo_dispatch.bench.generate.decoder import empty_cache, parameters, step
from hlo_dispatch.bench.generate.weights import DecoderSize
from hlo_dispatch.jax_plugin.explaining import optimized
from hlo_dispatch.selection.measurements import KnownMeasurements


class Requests:
    """A measurer that only notes what it is asked for."""

    is_thorough = False

    def __init__(self) -> None:
        self.asked: list[MeasurementRequest] = []

    def __call__(self, requests: Sequence[MeasurementRequest], *_: object) -> int:
        self.asked += requests
        return 0

    def nothing(self, *_: object, **__: object) -> None: ...

    resume = finish = reserve = measure_program = nothing


def requests_of(function: Callable[..., Any], *arguments: Any) -> list[MeasurementRequest]:
    measurer = Requests()
    pipeline((), "measure").with_knowledge(KnownMeasurements(), lambda _: measurer).run(optimized(function, *arguments))
    return measurer.asked


@cache
def requests_of_layers(layers: int, dtype: str, tokens: int) -> list[MeasurementRequest]:
    size = DecoderSize(layers, 256, 4, 2, 704, vocabulary=16000)  # of one class of footprints
    arguments = parameters(size, "unrolled", dtype), empty_cache(size, "unrolled", 1, 64, dtype)
    return requests_of(step(size, "unrolled"), *arguments, jnp.ones((1, tokens), "int32"), jnp.int32(8))


@pytest.mark.parametrize("tokens", [1, 16])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_equal_layers_ask_once(dtype: str, tokens: int) -> None:
    few, many = (requests_of_layers(layers, dtype, tokens) for layers in (4, 8))
    assert sum(request.count for request in many) > 1.5 * sum(request.count for request in few)
    assert {request.digest for request in many} == {request.digest for request in few}


def test_what_takes_most_time_comes_first() -> None:
    """Of all occurrences together; the larger product occurs once."""
    x, small, large = (np.ones(shape, "float32") for shape in ((64, 256), (256, 256), (256, 1000)))

    def layers(x: Any, small: Any, large: Any) -> Any:
        for _ in range(8):
            x = jnp.tanh(x @ small)
        return x @ large

    first, *_ = asked = requests_of(layers, x, small, large)
    assert first.count > 1
    assert [request.seconds for request in asked] == sorted((r.seconds for r in asked), reverse=True)


def test_iterations_count() -> None:
    """All that are known, and fewer are assumed where none are."""
    x, small, large = (np.ones(shape, "float32") for shape in ((64, 256), (256, 256), (256, 256 * 100)))

    def loop(x: Any, small: Any, large: Any) -> Any:
        x, _ = jax.lax.scan(lambda x, _: (jax.nn.relu(x @ small), None), x, None, length=1000)
        return x @ large

    def unknown(x: Any, small: Any, large: Any) -> Any:
        return jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: jax.nn.relu(x @ small), x) @ large

    first, *_ = requests_of(loop, x, small, large)
    assert first.match.output.shape.dimensions == (64, 256)
    first, *_ = requests_of(unknown, x, small, large)
    assert first.match.output.shape.dimensions == (64, 256 * 100)


def test_few_iterations_count() -> None:
    x, small, large = (np.ones(shape, "float32") for shape in ((64, 256), (256, 256), (256, 1000)))

    def loop(x: Any, small: Any, large: Any) -> Any:
        x, _ = jax.lax.scan(lambda x, _: (jnp.tanh(x @ small), None), x, None, length=50)
        return x @ large

    first, *_ = requests_of(loop, x, small, large)
    assert first.match.output.shape.dimensions == (64, 256)
