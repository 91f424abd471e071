"""What fails, or changes, while a program is prepared: calls go on, and get what their own arguments give."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from immediate import SERVICES, Later, jitted

from hlo_dispatch.automatic_freezing import overview
from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.automatic_freezing.memory_budget import MemoryBudget

WIDTH = 16


def weights(scale: float = 1.0) -> dict[str, Any]:
    w = scale * jnp.linspace(-1, 1, 2 * WIDTH * WIDTH, dtype="float32").reshape(2 * WIDTH, WIDTH)
    return {"w": w, "b": scale * jnp.arange(WIDTH, dtype="float32")}


def layer(p: dict[str, Any], x: Any) -> Any:
    return jnp.tanh(x @ p["w"] + p["b"])


def check(function: Any, p: dict[str, Any], number: int) -> None:
    x = jnp.cos(number + jnp.arange(6 * WIDTH, dtype="float32")).reshape(3, 2 * WIDTH)
    wide = [np.asarray(value, "float64") for value in (x, p["w"], p["b"])]
    np.testing.assert_allclose(function(p, x), np.tanh(wide[0] @ wide[1] + wide[2]), rtol=2e-5, atol=2e-5)


@contextlib.contextmanager
def compiles_fail() -> Iterator[None]:
    """Each compile inside the block raises."""

    def listen(event: str, _: float, **__: Any) -> None:
        raise OSError("nothing can be compiled")

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.filterwarnings("ignore")
def test_a_failed_compile_leaves_the_plain_program(caplog: pytest.LogCaptureFixture) -> None:
    later, budget, p = Later(), MemoryBudget(1 << 30), weights()
    function = JittedFunction(layer, {}, replace(SERVICES, compile=later, budget=budget))
    for number in range(3):
        check(function, p, number)
    with compiles_fail():
        later.run()
    (site,) = function.sites
    assert "nothing can be compiled" in overview.sentence(site)
    assert "nothing can be compiled" in caplog.text
    assert not site.preparation.is_running
    assert not budget.bytes
    for number in range(4):
        check(function, p, number)
        check(function, weights(2.0), number)
    assert site.program is None
    assert not later.jobs


def test_a_failed_preprocessing_leaves_the_plain_program(caplog: pytest.LogCaptureFixture) -> None:
    left = [1 << 30]

    def available() -> int:
        return left.pop()  # raises the second time, as where /proc cannot be read any more

    p = weights()
    function = JittedFunction(layer, {}, replace(SERVICES, budget=MemoryBudget(None, available)))
    for number in range(6):
        check(function, p, number)
    (site,) = function.sites
    assert not left
    assert site.program is None
    assert "IndexError" in site.preparation.failure
    assert "IndexError" in caplog.text
    assert not site.preparation.is_running


@pytest.mark.parametrize("when", ["before it is compiled", "before it is preprocessed", "behind it"])
@pytest.mark.parametrize("what", ["caches", "cache", "weights"])
def test_what_changes_meanwhile(what: str, when: str) -> None:
    compiling, preprocessing, p, q = Later(), Later(), weights(), weights(-2.0)
    function = jitted(layer, replace(SERVICES, compile=compiling, preprocess=preprocessing))
    for number in range(3):
        check(function, p, number)
    for jobs in (compiling, preprocessing):
        if when == f"before it is {'compiled' if jobs is compiling else 'preprocessed'}":
            _change(function, what, q)
        jobs.run()
    if when == "behind it":
        _change(function, what, q)
    for number in range(4):
        for weight in (p, q):
            check(function, weight, number)
            compiling.run()
            preprocessing.run()
    for number in range(8):
        check(function, p, number)
        compiling.run()
        preprocessing.run()
    (site,) = function.sites
    assert not site.preparation.failure
    assert not site.preparation.is_running


def _change(function: JittedFunction, what: str, q: dict[str, Any]) -> None:
    if what == "caches":
        jax.clear_caches()
    elif what == "cache":
        function.clear_cache()
    else:
        check(function, q, 1)
