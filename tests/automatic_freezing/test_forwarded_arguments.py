"""What a function donates and returns as it is comes back as the same object, and is frozen as any other argument."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from immediate import SERVICES, Later, is_frozen, jitted

WIDTH = 16


def weights(scale: float = 1.0) -> dict[str, Any]:
    w = scale * jnp.linspace(-1, 1, 2 * WIDTH * WIDTH, dtype="float32").reshape(2 * WIDTH, WIDTH)
    return {"w": w, "b": scale * jnp.arange(WIDTH, dtype="float32")}


def inputs(number: int, rows: int = 3) -> jax.Array:
    return jnp.cos(number + jnp.arange(rows * 2 * WIDTH, dtype="float32")).reshape(rows, 2 * WIDTH)


def step(state: Any, x: Any) -> Any:
    """As Keras' `evaluate`: weights come back as they are, a counter does not."""
    p, count = state
    return jnp.tanh(x @ p["w"] + p["b"]), (p, count + 1)


def expected(p: dict[str, Any], x: Any) -> np.ndarray:
    w, b = (np.asarray(p[name], "float64") for name in "wb")
    return np.tanh(np.asarray(x, "float64") @ w + b)


def check(function: Any, state: Any, number: int, rows: int = 3) -> Any:
    """A call; returns the new state."""
    count, wanted = int(state[1]), expected(state[0], inputs(number, rows))
    y, (p, counted) = function(state, inputs(number, rows))
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-5)
    assert int(counted) == count + 1
    return p, counted


def frozen(services: Any = SERVICES) -> tuple[Any, Any]:
    function, p = jitted(step, services, donate_argnums=0), weights()
    state = p, jnp.zeros((), "int32")
    for number in range(4):
        before = state
        state = check(function, state, number)
        assert state[0]["w"] is p["w"]
        assert state[0]["b"] is p["b"]
        assert before[1].is_deleted(), "what changes is donated"
    return function, state


def test_they_are_the_same_objects_and_frozen() -> None:
    function, state = frozen()
    assert is_frozen(function)
    assert set(function.sites[0].names) == {"[0][0]['b']", "[0][0]['w']"}
    for number in range(4):
        state = check(function, state, number, rows=5)
    assert int(state[1]) == 8


def test_the_function_is_traced_once_a_shape() -> None:
    traced: list[int] = []

    def counted(state: Any, x: Any) -> Any:
        traced.append(x.shape[0])
        return step(state, x)

    function, state = jitted(counted, donate_argnums=0), (weights(), jnp.zeros((), "int32"))
    for rows in (3, 3, 3, 3, 5, 5, 5):
        state = check(function, state, rows, rows)
    assert is_frozen(function)
    assert traced == [3, 5]


def test_others_in_their_place_count_at_once() -> None:
    function, state = frozen()
    state = weights(-2.0), state[1]
    for number in range(4):
        state = check(function, state, number)
    assert is_frozen(function)


def test_one_that_was_deleted_is_an_error() -> None:
    function, state = frozen()
    state[0]["b"].delete()
    with pytest.raises(RuntimeError, match="deleted"):
        function(state, inputs(0))
    state = weights(), jnp.zeros((), "int32")
    check(function, state, 1)


def test_one_that_nobody_reads_is_an_error_where_it_was_deleted() -> None:
    function = jitted(lambda state, x: (state, x + 1.0), donate_argnums=0)
    state = jnp.ones((32, 32)), jnp.ones((32, 32))
    for _ in range(4):
        state, y = function(state, jnp.ones(2))
        np.testing.assert_array_equal(y, 2.0)
    state[1].delete()
    with pytest.raises(RuntimeError, match="deleted"):
        function(state, jnp.ones(2))


def test_an_array_of_numpy_comes_back_as_one_of_jax() -> None:
    function, state = frozen()
    p = {"w": np.array(state[0]["w"]), "b": np.array(state[0]["b"])}
    wanted = expected(p, inputs(1))
    y, (returned, _) = function((p, state[1]), inputs(1))
    p["w"][:] = 0.0
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-5)
    assert isinstance(returned["w"], jax.Array)
    assert np.abs(returned["w"]).max() == 1.0


def test_one_that_comes_back_twice_is_two_arrays() -> None:
    function = jitted(lambda p, x: (p, p["w"], x @ p["w"]), donate_argnums=0)
    p = weights()
    for number in range(5):
        p, w, _ = function(p, inputs(number))
        assert w is not p["w"]
        w.delete()
    np.testing.assert_allclose(p["w"], weights()["w"])


@pytest.mark.parametrize("donated", [(0,), (0, 1)])
def test_one_array_in_two_places_is_an_error_as_jax_has_it(donated: tuple[int, ...]) -> None:
    function = jitted(lambda p, w, x: (p, 2.0 * w, x @ p["w"]), donate_argnums=donated)
    p, w = weights(), weights()["w"]
    for number in range(5):
        p, w, _ = function(p, w, inputs(number))
    assert is_frozen(function)
    for arguments in ((p, p["w"]), ({"w": w, "b": w}, p["w"])):
        with pytest.raises(Exception, match=r"[Dd]onate"):
            function(*arguments, inputs(0))
        assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(arguments))


def test_a_frozen_array_is_not_donated_in_another_place() -> None:
    function, p, w = jitted(lambda p, w, x: (2.0 * w, x @ p["w"]), donate_argnums=1), weights(), weights()["w"]
    for number in range(5):
        w, _ = function(p, w, inputs(number))
    assert is_frozen(function)
    for shared in (p["w"], w):
        with pytest.raises(Exception, match=r"[Dd]onate"):
            function({"w": shared, "b": p["b"]}, shared, inputs(0))
        assert not shared.is_deleted()
    function(p, w, inputs(1))
    assert w.is_deleted()


def test_training_is_not_forwarded() -> None:
    def train(p: Any, x: Any) -> Any:
        return jax.tree.map(lambda leaf: 0.5 * leaf, p), x @ p["w"]

    function, p = jitted(train, donate_argnums=0), weights()
    for number in range(6):
        before = p
        p, _ = function(p, inputs(number))
        assert before["w"].is_deleted()
    assert not function.sites[0].plain.forwarded
    np.testing.assert_allclose(p["w"], weights()["w"] / 64, rtol=1e-6)


def test_static_and_named_arguments() -> None:
    def program(kind: str, state: Any, *, x: Any, scale: float) -> Any:
        return (x @ state["w"] + state["b"]) * scale if kind == "linear" else x, state

    function = jitted(program, static_argnums=0, static_argnames="scale", donate_argnums=1)
    p = weights()
    for number in range(5):
        y, p = function("linear", p, x=inputs(number), scale=2.0)
        wanted = 2 * (np.asarray(inputs(number), "float64") @ np.asarray(p["w"], "float64") + np.asarray(p["b"]))
        np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-4)
        y, p = function("nothing", p, x=inputs(number, 2), scale=2.0)
        np.testing.assert_array_equal(y, inputs(number, 2))
    assert function.sites[0].program is not None
    y, p = function("linear", p, x=inputs(0, 5), scale=2.0)
    assert y.shape == (5, WIDTH)


def test_in_other_programs_it_is_the_plain_function() -> None:
    function, (p, count) = frozen()
    x = inputs(0)
    np.testing.assert_allclose(jax.jit(lambda x: function((p, count), x)[0])(x), expected(p, x), rtol=2e-5, atol=2e-5)
    gradient = jax.grad(lambda x: function((p, 0.0), x)[0].sum())(x)
    np.testing.assert_allclose(gradient, jax.grad(lambda x: step((p, 0.0), x)[0].sum())(x), rtol=1e-4, atol=1e-5)
    check(function, (p, count), 1)
    with jax.disable_jit():
        check(function, (p, jnp.zeros((), "int32")), 2)


def test_caches_may_be_cleared_and_calls_may_fail() -> None:
    function, state = frozen()
    jax.clear_caches()
    for number in range(4):
        state = check(function, state, number)
    with pytest.raises(TypeError):
        function(state, jnp.ones((3, 7)))
    state = state[0], jnp.zeros((), "int32")  # it may have been donated
    state = check(function, state, 1)
    function.clear_cache()
    for number in range(4):
        state = check(function, state, number)


def test_two_threads() -> None:
    later = Later()
    function, (p, _) = frozen(replace(SERVICES, compile=later, preprocess=later))
    errors: list[Exception] = []

    def work(p: Any) -> None:
        try:
            state = p, jnp.zeros((), "int32")
            for number in range(10):
                state = check(function, state, number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(other,)) for other in (p, p, weights(3.0))]
    for thread in threads:
        thread.start()
    later.run()
    for thread in threads:
        thread.join(120)
    assert not errors
