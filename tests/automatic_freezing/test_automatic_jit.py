"""`hlo_dispatch.jit` gives what `jax.jit` gives, whatever its caller does with the arguments."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from immediate import SERVICES, Clock, Later, is_frozen, jitted

import hlo_dispatch
from hlo_dispatch.automatic_freezing import overview
from hlo_dispatch.automatic_freezing.jit import JittedFunction
from hlo_dispatch.automatic_freezing.memory_budget import MemoryBudget

WIDTH = 16


def weights(scale: float = 1.0) -> dict[str, Any]:
    w = scale * jnp.linspace(-1, 1, 2 * WIDTH * WIDTH, dtype="float32").reshape(2 * WIDTH, WIDTH)
    return {"w": w, "b": scale * jnp.arange(WIDTH, dtype="float32")}


def layer(p: dict[str, Any], x: Any, shift: Any = 0.0) -> Any:
    return jnp.tanh(x @ p["w"] + p["b"]) + shift


def inputs(number: int, rows: int = 3) -> jax.Array:
    return jnp.cos(number + jnp.arange(rows * 2 * WIDTH, dtype="float32")).reshape(rows, 2 * WIDTH)


def expected(p: dict[str, Any], x: Any, shift: float = 0.0) -> np.ndarray:
    w, b = (np.asarray(p[name], "float64") for name in "wb")
    return np.tanh(np.asarray(x, "float64") @ w + b) + shift


def check(function: Callable[..., Any], p: dict[str, Any], x: Any, **kwargs: Any) -> None:
    got = np.asarray(function(p, x, **kwargs))
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, expected(p, x, **kwargs), rtol=2e-5, atol=2e-5)


def frozen(p: dict[str, Any]) -> Any:
    function = jitted(layer)
    for number in range(4):
        check(function, p, inputs(number))
    assert is_frozen(function)
    return function


def test_the_third_call_is_frozen_and_says_what() -> None:
    function, p = jitted(layer), weights()
    for number in range(3):
        assert number == 0 or not is_frozen(function)
        check(function, p, inputs(number))
    assert is_frozen(function)
    (site,) = function.sites
    assert site.names == ("[0]['b']", "[0]['w']")
    assert "2 arguments frozen" in overview.sentence(site)
    check(function, p, inputs(9), shift=2.0)  # another structure: a site of its own
    assert len(function.sites) == 2


def test_swapped_weights_count_at_once_and_are_prepared_again_without_compiling() -> None:
    p, q = weights(), weights(-0.5)
    function = frozen(p)
    (site,) = function.sites
    first = site.program
    with compiles() as names:
        for number in range(4):
            check(function, q, inputs(number))
    assert is_frozen(function)
    assert site.program is not first
    assert not names
    check(function, p, inputs(7))


def test_weights_that_change_in_each_call_end_in_the_plain_program() -> None:
    function = frozen(weights())
    held = [weights(0.1 * number) for number in range(6)]
    for number, p in enumerate(held):
        check(function, p, inputs(number))
    (site,) = function.sites
    assert site.program is None
    assert not site.is_watching


def test_the_same_answer_is_computed_again() -> None:
    """Where x stays the same, too: arguments are frozen, answers are not."""
    function, p, x = jitted(layer), weights(), inputs(0)
    for _ in range(4):
        check(function, p, x)
    assert is_frozen(function)
    check(function, p, inputs(1))


def test_deleted_weights_are_an_error() -> None:
    p = weights()
    function = frozen(p)
    p["w"].delete()
    with pytest.raises(RuntimeError, match="deleted"):
        function(p, inputs(0))
    check(function, weights(), inputs(0))


def test_donated_weights_are_not_what_they_were() -> None:
    p = weights()
    function = frozen(p)
    step = jax.jit(lambda w: w * 2.0, donate_argnums=0)
    q = p | {"w": step(p["w"])}
    for number in range(4):
        check(function, q, inputs(number))


def test_an_updated_copy_is_another_array() -> None:
    p = weights()
    function = frozen(p)
    p["w"] = p["w"].at[3, 3].set(100.0)
    for number in range(4):
        check(function, p, inputs(number))


def test_dead_weights_are_freed() -> None:
    p = weights()
    function = frozen(p)
    (site,) = function.sites
    assert site.preparation.bytes >= 0
    del p
    gc.collect()
    assert site.program is None
    assert site.preparation.bytes == 0
    q = weights(3.0)
    for number in range(4):
        check(function, q, inputs(number))
    assert is_frozen(function)


@pytest.mark.parametrize("size", [4, 1 << 15])
def test_donated_arguments_are_donated_and_static_results_are_copies(size: int) -> None:
    def step(p: dict[str, Any], cache: Any, x: Any) -> Any:
        return p["w"], cache + 1.0, layer(p, x)

    function, p, cache = jitted(step, donate_argnums=1), weights(), jnp.zeros(size)
    for number in range(6):
        before = cache
        w, cache, y = function(p, cache, inputs(number))
        assert before.is_deleted()
        np.testing.assert_array_equal(w, p["w"])
        np.testing.assert_allclose(y, expected(p, inputs(number)), rtol=2e-5, atol=2e-5)
        w.delete()  # the caller's own copy
    np.testing.assert_array_equal(cache, 6.0)
    assert is_frozen(function) == (size == 4 or jax.__version_info__ >= (0, 11))
    assert is_frozen(function) or "donates" in overview.sentence(function.sites[0])


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_what_is_donated_in_vain_lives_on() -> None:
    """As under `jax.jit`: no result can take its memory."""
    function, p, x = jitted(layer, donate_argnums=1), weights(), inputs(0)
    for _ in range(5):
        check(function, p, x)
    assert is_frozen(function)
    assert not x.is_deleted()


@pytest.mark.parametrize("kind", ["numpy", "key", "callback"])
def test_what_is_never_frozen(kind: str) -> None:
    def program(p: Any, key: Any, x: Any) -> Any:
        if kind == "callback":
            jax.debug.callback(lambda _: None, x[0, 0])
        return layer(p, x) + 0 * jax.random.uniform(key, (WIDTH,))

    p: Any = jax.tree.map(np.array, weights()) if kind == "numpy" else weights()
    key = jax.random.split(jax.random.key(0), 200)[0] if kind != "key" else jax.random.key(1)
    function = jitted(program)
    for number in range(4):
        if kind == "numpy":
            p["w"] += 1.0  # in place: the same object, other numbers
        np.testing.assert_allclose(function(p, key, inputs(number)), expected(p, inputs(number)), rtol=2e-5, atol=2e-5)
    (site,) = function.sites
    assert (site.program is not None) == (kind == "key")
    assert kind != "key" or not any("1" in name for name in site.names)


def test_under_transformations_it_is_the_plain_function() -> None:
    p = weights()
    function = frozen(p)
    x = inputs(5)
    np.testing.assert_allclose(jax.vmap(function, (None, 0))(p, x[None])[0], expected(p, x), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(jax.jit(function)(p, x), expected(p, x), rtol=2e-5, atol=2e-5)
    gradient = jax.grad(lambda x: function(p, x).sum())(x)
    np.testing.assert_allclose(gradient, jax.grad(lambda x: layer(p, x).sum())(x), rtol=1e-4, atol=1e-5)
    looped = jax.lax.fori_loop(0, 2, lambda _, y: y + function(p, x), jnp.zeros((3, WIDTH)))
    np.testing.assert_allclose(looped, 2 * expected(p, x), rtol=5e-5, atol=5e-5)
    assert is_frozen(function)


def test_what_jit_offers() -> None:
    @hlo_dispatch.jit
    def whole(x: Any) -> Any:
        """Twice."""
        return 2 * x

    @hlo_dispatch.jit(static_argnames="count")
    def repeated(x: Any, count: int) -> Any:
        return x * count

    assert whole.__name__ == "whole"
    assert whole.__doc__ == "Twice."
    assert whole.lower(1.0).compile()(2.0) == 4.0
    assert whole.eval_shape(jnp.ones(3)).shape == (3,)
    assert whole.trace(1.0).jaxpr.out_avals
    assert isinstance(whole, jax.stages.Wrapped)
    assert jax.export.export(whole)(jnp.ones(2)).call(jnp.ones(2))[0] == 2.0
    assert copy.deepcopy(whole)(3.0) == 6.0
    whole.clear_cache()
    assert whole(3.0) == 6.0
    assert [repeated(jnp.ones(()), count) for count in (2, 3)] == [2, 3]
    assert repeated(jnp.ones(()), count=4) == 4
    with pytest.raises(TypeError):
        whole(object())

    class Model:
        @hlo_dispatch.jit
        def call(self: Any) -> Any:
            return 2.0

    jax.tree_util.register_pytree_node(Model, lambda _: ((), None), lambda *_: Model())
    assert Model().call() == 2.0


def test_static_arguments_have_sites_of_their_own() -> None:
    function = jitted(lambda n, p, x: n * layer(p, x), static_argnums=0)
    p = weights()
    for number in range(5):
        for factor in (1, 2.0):
            got = function(factor, p, inputs(number))
            np.testing.assert_allclose(got, factor * expected(p, inputs(number)), rtol=2e-5, atol=5e-5)
    assert [site.program is not None for site in function.sites] == [True, True]


def test_further_shapes_are_compiled_for_and_caches_may_be_cleared() -> None:
    p = weights()
    function = frozen(p)
    for rows in (1, 5, 1, 5, 1, 5):
        check(function, p, inputs(rows, rows))
    (site,) = function.sites
    assert len(site.program.calls) == 3
    jax.clear_caches()
    served = [call.served for call in site.program.calls.values()]
    for number in range(4):
        check(function, p, inputs(number))
    assert is_frozen(function)
    assert sum(call.served for call in site.program.calls.values()) > sum(served) or len(site.program.calls) == 3


def test_other_settings_of_jax_are_other_programs() -> None:
    p = weights()
    function = frozen(p)
    with jax.enable_x64(True):
        wide = function(p, np.asarray(inputs(0), "float64"))
    assert wide.dtype == "float64"
    with jax.disable_jit():
        check(function, p, inputs(0))
    check(function, p, inputs(1))


def test_threads_with_other_weights() -> None:
    function, errors = jitted(layer), []

    def work(p: dict[str, Any]) -> None:
        try:
            for number in range(8):
                check(function, p, inputs(number))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(weights(scale),)) for scale in (1.0, -1.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors


def test_calls_go_on_while_it_is_prepared() -> None:
    later = Later()
    function, p = jitted(layer, replace(SERVICES, compile=later, preprocess=later)), weights()
    for number in range(5):
        check(function, p, inputs(number))
    assert not is_frozen(function)
    assert len(later.jobs) == 1, "one at a time"
    later.run()
    assert is_frozen(function)
    check(function, p, inputs(5))
    later.run()


def test_weights_that_are_deleted_while_it_is_prepared() -> None:
    later = Later()
    function, p = jitted(layer, replace(SERVICES, compile=later, preprocess=later)), weights()
    for number in range(3):
        check(function, p, inputs(number))
    p["w"].delete()
    later.run()
    (site,) = function.sites
    assert site.program is None
    q = weights(2.0)
    for number in range(4):
        check(function, q, inputs(number))
        later.run()


def test_a_failure_while_preparing_leaves_the_plain_program(caplog: pytest.LogCaptureFixture) -> None:
    def fails(job: Callable[[], None]) -> bool:
        raise MemoryError("no memory")

    function, p = jitted(layer, replace(SERVICES, compile=fails)), weights()
    for number in range(5):
        check(function, p, inputs(number))
    (site,) = function.sites
    assert "no memory" in site.preparation.failure
    assert "no memory" in overview.sentence(site)
    assert len(caplog.records) == 1


def test_the_budget_keeps_the_plain_program() -> None:
    function, p = JittedFunction(layer, {}, replace(SERVICES, budget=MemoryBudget(100))), weights()
    for number in range(5):
        check(function, p, inputs(number))
    assert not is_frozen(function)
    assert "over the 100" in function.sites[0].refusal


@pytest.mark.parametrize("wins", [False, True])
def test_the_trial_decides(wins: bool) -> None:
    clock = Clock()
    sides: list[str] = []

    def when_ready(results: Any, done: Callable[[bool], None]) -> bool:
        jax.block_until_ready(results)
        sides.append("plain" if len(sides) % 2 == 0 else "frozen")
        clock.seconds += 5.0 if (sides[-1] == "plain") == wins else 1.0
        done(True)
        return True

    services = replace(SERVICES, samples=2, clock=clock, when_ready=when_ready)
    p = weights()
    twice = {**p, "w": 2 * p["w"]}
    function = jitted(lambda p, x: layer({**p, "w": 2 * p["w"]}, x), services)
    for number in range(12):
        np.testing.assert_allclose(function(p, inputs(number)), expected(twice, inputs(number)), rtol=2e-5, atol=5e-5)
    assert is_frozen(function) == wins
    assert len(sides) == 6, "each side once without counting, and twice"
    (site,) = function.sites
    assert ("instead of" in overview.sentence(site)) == wins
    assert wins or "plain program is faster" in overview.sentence(site)


def test_now_and_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_DISPATCH_FREEZE", "never")
    assert type(hlo_dispatch.jit(layer)) is type(jax.jit(layer))
    monkeypatch.setenv("HLO_DISPATCH_FREEZE", "now")
    function = hlo_dispatch.jit(lambda p, x: layer({**p, "w": p["w"][: 2 * WIDTH]}, x))
    p = weights() | {"w": jnp.concatenate([weights()["w"]] * 40)}
    held = [inputs(number) for number in range(3)]
    for x in held:
        np.testing.assert_allclose(function(p, x), expected(weights(), x), rtol=2e-5, atol=2e-5)
        assert is_frozen(function)
    assert overview.totals()[0] > 0
    assert hlo_dispatch.statistics().frozen > 0


class compiles:
    """Names of the modules that JAX compiles inside the block."""

    def __enter__(self) -> list[str]:
        self._names: list[str] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        return self._names

    def _listen(self, event: str, _: float, **__: Any) -> None:
        if event.endswith("backend_compile_duration"):
            self._names.append(event)

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._listen)
