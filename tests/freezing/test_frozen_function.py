"""A frozen function is the function: for every argument that jit takes, under every transformation."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_dispatch
from hlo_dispatch.freezing import program

X = jnp.linspace(-1, 1, 4 * 64).reshape(4, 64)


def weights(scale: float = 0.1) -> dict[str, Any]:
    w = scale * jax.random.normal(jax.random.key(0), (64, 32))
    return {"w": w, "b": np.arange(32, dtype="float32"), "act": jnp.tanh, "twice": True, "nothing": None}


def network(p: dict[str, Any], x: Any, scale: Any = 1.0, *, shift: Any = 0.0) -> Any:
    y = p["act"](x @ p["w"] + p["b"]) * scale + shift
    return {"y": y * 2 if p["twice"] else y, "none": None, "x": x}


def assert_same(got: Any, wanted: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        assert getattr(one, "weak_type", False) == getattr(other, "weak_type", False)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(other).max(initial=0))))


def jitted(p: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    return jax.jit(lambda *args, **kwargs: network(p, *args, **kwargs))(*args, **kwargs)


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "array": ((X,), {}),
    "numpy": ((np.asarray(X),), {}),
    "float64": ((np.asarray(X, "float64"),), {}),
    "python_number": ((X, 2), {}),
    "weak": ((X, jnp.asarray(2.0)), {}),
    "keyword": ((X,), {"shift": 3.0, "scale": np.float32(2)}),
    "half": ((X.astype("bfloat16"),), {}),
    "boolean": ((X, True), {}),
    "rows": ((X[:1],), {}),
    "nothing_to_do": ((X[:0],), {}),
}


@pytest.mark.parametrize("prepares", [False, True], ids=["kept", "prepared"])
@pytest.mark.parametrize("wide", [False, True], ids=["x32", "x64"])
@pytest.mark.parametrize("call", CALLS)
def test_it_returns_what_jit_returns(call: str, wide: bool, prepares: bool, request: pytest.FixtureRequest) -> None:
    if prepares:
        request.getfixturevalue("everything_prepared")
    args, kwargs = CALLS[call]
    with jax.enable_x64(wide):
        p = weights()
        fast = hlo_dispatch.freeze(network, p)
        for _ in range(3):
            assert_same(fast(*args, **kwargs), jitted(p, *args, **kwargs))
    assert len(fast.report.programs) == 1


def test_one_program_for_each_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    whole = program.traced_module
    monkeypatch.setattr(program, "traced_module", lambda *args: (built.append(1), whole(*args))[1])
    p = weights()
    fast = hlo_dispatch.freeze(network, p)
    for _ in range(3):
        for args, kwargs in CALLS.values():
            assert_same(fast(*args, **kwargs), jitted(p, *args, **kwargs))
    # numpy, and float64 where that is not enabled, are the array's own type.
    assert len(built) == len(fast.report.programs) == len(CALLS) - 2


def test_settings_that_count_for_jit_count(everything_prepared: None) -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p)
    fast(X)
    with jax.enable_x64(True):
        assert_same(fast(np.asarray(X, "float64")), jitted(p, np.asarray(X, "float64")))
        fast.update(p)
    assert_same(fast(np.asarray(X, "float64")), jitted(p, X))
    with jax.disable_jit():
        assert_same(fast(X), network(p, X))


def test_not_a_number_is_found() -> None:
    fast = hlo_dispatch.freeze(lambda w, x: x / w, jnp.zeros(3))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        fast(jnp.zeros(3))


def test_inside_of_transformations_it_is_the_function() -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p)
    fast(X)

    def loss(f: Any) -> Any:
        return lambda x: (f(x)["y"] ** 2).sum()

    plain = lambda x: network(p, x)  # noqa: E731
    assert_same(jax.grad(loss(fast))(X), jax.grad(loss(plain))(X))
    assert_same(jax.jit(fast)(X), jitted(p, X))
    assert_same(jax.vmap(fast)(X), jax.vmap(plain)(X))
    assert_same(jax.jit(jax.vmap(jax.grad(loss(fast))))(X), jax.vmap(jax.grad(loss(plain)))(X))
    assert jax.eval_shape(fast, X)["y"].shape == (4, 32)
    assert_same(fast(X), jitted(p, X))


def test_arrays_that_it_closes_over_are_frozen(everything_prepared: None) -> None:
    w, b = jnp.full((64, 64), 0.1), np.ones(64, "float32")
    inner = jax.jit(lambda x: x @ w)
    fast = hlo_dispatch.freeze(lambda x: jnp.tanh(inner(inner(x))) + b * w[0])
    assert_same(fast(X), jnp.tanh(X @ w @ w) + b * w[0])
    (made,) = fast.report.programs
    assert [value.shape for value in made.prepared] == ["f32[64]{0}", "f32[64,64]{1,0}"] or len(made.prepared) == 2


def test_keys_of_random_numbers() -> None:
    def draw(key: Any, other: Any) -> Any:
        return jax.random.normal(key, (3,)) + jax.random.normal(other, (3,)), jax.random.split(key)

    key, other = jax.random.key(1), jax.random.key(2)
    got, wanted = hlo_dispatch.freeze(draw, key)(other), draw(key, other)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6)
    assert (jax.random.key_data(got[1]) == jax.random.key_data(wanted[1])).all()


def test_results_that_depend_on_one_side_only() -> None:
    fast = hlo_dispatch.freeze(lambda w, x: (w, w, x, x, 3.0, w.sum()), jnp.arange(3.0))
    assert_same(fast(X), jax.jit(lambda w, x: (w, w, x, x, 3.0, w.sum()))(jnp.arange(3.0), X))
    assert_same(hlo_dispatch.freeze(lambda w: w * 2, jnp.arange(3.0))(), jnp.arange(3.0) * 2)
    assert hlo_dispatch.freeze(lambda w, x: x, jnp.ones(3))(2).weak_type


def test_whatever_is_installed_meanwhile(everything_prepared: None) -> None:
    p = weights()
    wanted = jitted(p, X)
    fast = hlo_dispatch.freeze(network, p)
    with hlo_dispatch.enabled(policy="always"):
        assert_same(fast(X), wanted)
        assert_same(fast(X), wanted)
    assert_same(fast(X), wanted)
    jax.clear_caches()
    assert_same(fast(X), wanted)
    assert not hlo_dispatch.installed()


def test_jitted_functions_are_frozen_too() -> None:
    p = jnp.full((64, 32), 0.1)
    fast = hlo_dispatch.freeze(jax.jit(lambda p, x: x @ p, donate_argnums=0), p)
    assert_same(fast(X), X @ p)
    assert not p.is_deleted()


def test_threads_build_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    whole = program.traced_module
    monkeypatch.setattr(program, "traced_module", lambda *args: (built.append(1), whole(*args))[1])
    p, results = weights(), []
    fast = hlo_dispatch.freeze(network, p)
    threads = [threading.Thread(target=lambda: results.append(fast(X))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert len(results) == 6
    for result in results:
        assert_same(result, jitted(p, X))


def test_different_functions_compile_at_once() -> None:
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        results[number] = hlo_dispatch.freeze(lambda w, x: x @ w + number % 2, jnp.ones((64, 8)))(X)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        assert_same(results[number], X @ jnp.ones((64, 8)) + number % 2)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda w, x: (jax.debug.print("{}", x), x)[1], "calls back into Python"),
        (lambda w, x: jax.pure_callback(lambda x: x, x, x), "calls back into Python"),
    ],
    ids=["print", "callback"],
)
def test_what_cannot_be_frozen_is_said(fn: Any, said: str) -> None:
    with pytest.raises(hlo_dispatch.FreezeError, match=said):
        hlo_dispatch.freeze(fn, jnp.ones(3))(X)


def test_errors_of_the_function_are_its_own() -> None:
    fast = hlo_dispatch.freeze(network, weights())
    for _ in range(2):
        with pytest.raises(TypeError, match=r"dot_general|contracting|incompatible"):
            fast(X[:, :3])
    with pytest.raises(TypeError):
        fast("text")
    assert_same(fast(X), jitted(weights(), X))


def test_only_what_can_be_called_is_frozen() -> None:
    with pytest.raises(hlo_dispatch.FreezeError, match="a int alone cannot be frozen"):
        hlo_dispatch.freeze(3)


def test_it_compiles_while_others_install() -> None:
    stop, failed = threading.Event(), []

    def work(width: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            shift = float(number)
            try:
                fast = hlo_dispatch.freeze(lambda w, x, shift=shift: x @ w + shift, jnp.ones((64, width)))
                assert_same(fast(X), X @ jnp.ones((64, width)) + shift)
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(width,)) for width in (8, 9)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        with hlo_dispatch.enabled(policy="always"):
            stop.wait(0.05)
        stop.wait(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
