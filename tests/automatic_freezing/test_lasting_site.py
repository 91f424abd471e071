"""What calls meet that is out of the ordinary leaves what is frozen as it is, or lets it be prepared later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from immediate import SERVICES, Later, is_frozen, jitted, no_thread

from hlo_dispatch.automatic_freezing import overview, trial
from hlo_dispatch.automatic_freezing.call_form import Call
from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.automatic_freezing.memory_budget import MemoryBudget
from hlo_dispatch.jax_plugin.at_exit.accumulated_reports import AccumulatedReports
from hlo_dispatch.jax_plugin.at_exit.document import document

WIDTH = 16


def weights(scale: float = 1.0, dtype: str = "float32") -> dict[str, Any]:
    w = scale * jnp.linspace(-1, 1, 2 * WIDTH * WIDTH, dtype="float32").reshape(2 * WIDTH, WIDTH)
    return {"w": w.astype(dtype), "b": scale * jnp.arange(WIDTH, dtype="float32").astype(dtype)}


def layer(p: dict[str, Any], x: Any) -> Any:
    return jnp.tanh(x @ p["w"] + p["b"])


def doubled(p: dict[str, Any], x: Any) -> Any:
    """A layer of which something can be computed ahead."""
    return layer({**p, "w": p["w"] + p["w"]}, x)


def inputs(number: int, rows: int = 3) -> jax.Array:
    return jnp.cos(number + jnp.arange(rows * 2 * WIDTH, dtype="float32")).reshape(rows, 2 * WIDTH)


def check(function: Any, p: dict[str, Any], x: Any, plain: Callable[..., Any] = layer) -> None:
    got, wanted = function(p, x), jax.jit(lambda *args: plain(*args))(p, x)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def frozen(p: dict[str, Any], plain: Callable[..., Any] = layer, **services: Any) -> Any:
    function = jitted(plain, replace(SERVICES, **services))
    for number in range(4):
        check(function, p, inputs(number), plain)
    assert is_frozen(function)
    return function


def widest(p: dict[str, Any], x: Any) -> Any:
    return layer(p, x).astype(float)


def test_a_setting_of_the_calling_thread_ends_nothing() -> None:
    later, p = Later(), weights()
    function = jitted(widest, replace(SERVICES, compile=later))
    for number in range(3):
        check(function, p, inputs(number), widest)
    with jax.enable_x64(True):
        later.run()  # as a thread would whose settings are others
    assert not is_frozen(function)
    assert "setting of JAX" in overview.sentence(function.sites[0])
    for number in range(3):
        check(function, p, inputs(number), widest)
        later.run()
    assert is_frozen(function)
    for number in range(3):
        check(function, p, inputs(number, 5), widest)
    with jax.enable_x64(True):
        later.run()
    for number in range(3):
        check(function, p, inputs(number, 5), widest)
        later.run()
    assert is_frozen(function)
    check(function, p, inputs(7, 5), widest)


def test_what_a_function_reads_may_change_where_caches_are_cleared() -> None:
    scale, p = [1.0], weights()

    def scaled(p: Any, x: Any) -> Any:
        return scale[0] * layer(p, x)

    function = frozen(p, scaled)
    scale[0] = 2.0
    jax.clear_caches()
    for number in range(4):
        check(function, p, inputs(number), scaled)


def test_a_function_that_is_gone_holds_nothing_though_it_refers_to_itself() -> None:
    budget, p = MemoryBudget(1 << 30), weights()

    def made() -> weakref.ref[Any]:
        def recursive(p: Any, x: Any) -> Any:
            assert function is not None
            return layer(p, x)

        function = JittedFunction(recursive, {}, replace(SERVICES, budget=budget))
        for number in range(4):
            function(p, inputs(number))
        assert is_frozen(function)
        return weakref.ref(recursive)

    reference = made()
    gc.collect()
    assert not budget._bytes
    assert reference() is None


def test_a_jitted_function_may_be_jitted_again() -> None:
    inner = jitted(layer)
    outer = jitted(inner)  # type: ignore[arg-type]
    check(outer, weights(), inputs(0))
    assert outer._jitted is not inner._jitted
    assert outer._sites is not inner._sites


def test_what_is_prepared_while_the_cache_is_cleared_is_freed() -> None:
    later, budget, p = Later(), MemoryBudget(1 << 30), weights()
    function = JittedFunction(layer, {}, replace(SERVICES, compile=later, preprocess=later, budget=budget))
    for number in range(3):
        function(p, inputs(number))
    (site,) = function.sites
    function.clear_cache()
    later.run()
    assert site.program is None
    assert not budget._bytes


def test_calls_that_are_wrong_raise_what_jit_raises() -> None:
    p = weights()
    function, plain = frozen(p), jax.jit(layer)
    for wrong in (object(), "x", jnp.ones((3, 7)), 1 << 70):
        errors: list[str] = []
        for called in (function, plain):
            with pytest.raises((TypeError, OverflowError)) as raised:
                called(p, wrong)
            errors.append(str(raised.value))
        assert errors[0] == errors[1]
    assert is_frozen(function)


def test_where_nothing_may_be_traced_the_plain_program_takes_what_it_knows() -> None:
    p, x = weights(), inputs(0, 5)
    function = frozen(p)
    wanted = function(p, x)
    with jax.no_tracing():
        np.testing.assert_allclose(function(p, x), wanted, rtol=2e-5, atol=2e-5)
    assert is_frozen(function)


def test_weights_of_another_type_are_frozen_anew() -> None:
    p = weights()
    function = frozen(p)
    del p
    q = weights(1.0, "float16")
    for number in range(5):
        check(function, q, inputs(number))
    assert is_frozen(function)


def test_only_calls_with_results_are_served() -> None:
    p = weights()
    function = frozen(p)
    (program,) = function.sites[0].program.calls.values()
    served = program.served
    check(function, p, inputs(0, 5))
    assert program.served == served
    check(function, p, inputs(0))
    assert program.served == served + 1


def test_no_shape_is_compiled_for_a_program_that_was_replaced() -> None:
    p = weights()
    function = frozen(p, repeats=1)
    (site,) = function.sites
    former = site.program
    q = weights(2.0)
    for number in range(4):
        check(function, q, inputs(number))
    assert site.program is not former
    x = inputs(0, 5)
    leaves = jax.tree.leaves(((q, x), {}))
    for _ in range(3):
        site._compile_for(former, Call(leaves, (q, x), {}))
    assert len(site.program.calls) == 1
    assert not site.preparation.compiles


def test_without_a_thread_calls_go_on() -> None:
    p = weights()
    for services in ({"compile": no_thread}, {"preprocess": no_thread}):
        function = jitted(layer, replace(SERVICES, **services))
        for number in range(5):
            check(function, p, inputs(number))
        assert not is_frozen(function)
        assert not function.sites[0].preparation.is_running
        assert "no thread" in overview.sentence(function.sites[0])
    function = jitted(doubled, replace(SERVICES, samples=1, when_ready=lambda results, done: False))
    for number in range(8):
        check(function, p, inputs(number), doubled)
    (untimed,) = function.sites[0].preparation.trials.values()
    assert untimed.seconds == (None, None)
    assert untimed.begin().is_counted, "and no call waits for another"


def test_results_that_never_become_ready_do_not_hold_calls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "FIRST_WAIT", 0.0)
    p, waiting = weights(), Later()
    services = replace(SERVICES, samples=1, when_ready=lambda results, done: waiting(lambda: done(True)))
    function = jitted(doubled, services)
    for number in range(40):
        check(function, p, inputs(number), doubled)
    assert 24 <= len(waiting.jobs) < 35
    waiting.run()
    assert not is_frozen(function)
    assert "too long" in overview.sentence(function.sites[0])


@jax.tree_util.register_pytree_node_class
class Checked:
    """A class that takes arrays only."""

    def __init__(self, value: Any) -> None:
        assert isinstance(value, jax.Array)
        self.value = value

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _: None, values: Any) -> Checked:
        return cls(*values)


def test_results_of_a_class_that_checks_its_leaves() -> None:
    function, p = jitted(lambda p, x: Checked(layer(p, x))), weights()
    for number in range(4):
        np.testing.assert_allclose(function(p, inputs(number)).value, layer(p, inputs(number)), rtol=2e-5, atol=2e-5)
    assert is_frozen(function)


def test_what_is_not_read_commits_no_results() -> None:
    device = jax.devices()[0]
    function, p = jitted(lambda p, x: layer(p, x)), weights() | {"unused": jax.device_put(jnp.ones(500), device)}
    for number in range(4):
        assert not function(p, inputs(number)).committed
    assert is_frozen(function)


def test_the_page_of_a_run_says_what_is_frozen() -> None:
    p = weights()
    function = frozen(p)
    (sentence,) = function.report
    assert sentence.startswith("layer: 2 arguments frozen")
    accumulated = AccumulatedReports()
    statistics = {"frozen": 1, "frozen_arguments": [sentence, "f<g>: not frozen: why"]}
    page = document(accumulated, statistics, is_page=True).decode()
    assert "1 function with frozen arguments" in page
    assert "f&lt;g&gt;: not frozen" in page
    assert function.sites[0].is_settled
