"""The weights of a frozen function: references, release, and replacement."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout

import hlo_dispatch
from hlo_dispatch import FreezeError
from hlo_dispatch.autotune.run import executable

X = jnp.ones((4, 64))


def network(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"]) + p["b"]


def weights(value: float = 0.01) -> dict[str, Any]:
    return {"w": jnp.full((64, 64), value), "b": jnp.arange(64.0) * value}


def check(fast: Any, value: float = 0.01, x: Any = X) -> None:
    np.testing.assert_allclose(fast(x), network(weights(value), x), rtol=1e-5)


@pytest.fixture(params=["kept", "prepared"])
def _prepares(request: pytest.FixtureRequest) -> None:
    if request.param == "prepared":
        request.getfixturevalue("everything_prepared")


def test_preprocessed_weights_are_released(everything_prepared: None) -> None:
    p = weights()
    known = [weakref.ref(leaf) for leaf in jax.tree.leaves(p)]
    fast = hlo_dispatch.freeze(network, p)
    del p
    assert all(leaf() is not None for leaf in known), "until it is prepared"
    check(fast)
    gc.collect()
    assert all(leaf() is None for leaf in known)
    check(fast)
    for needs in (lambda: fast(X[:2]), lambda: jax.grad(lambda x: fast(x).sum())(X)):
        with pytest.raises(FreezeError, match=r"hold the weights, or freeze\(..., keep=True\).*update\(weights\)"):
            needs()
    p = weights(0.02)
    fast.update(p)
    check(fast, 0.02)
    check(fast, 0.02, X[:2])


def test_weights_can_be_held(everything_prepared: None) -> None:
    fast = hlo_dispatch.freeze(network, weights(), keep=True)
    check(fast)
    gc.collect()
    check(fast, x=X[:2])
    fast.update(weights(0.02))
    check(fast, 0.02, X[:3])


@pytest.mark.usefixtures("_prepares")
def test_weights_may_be_deleted_donated_or_overwritten() -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p)
    check(fast)
    p["w"].delete()
    check(fast)
    with pytest.raises(FreezeError, match="are gone"):
        fast(X[:2])
    p = weights(0.02)
    fast.update(p)
    jax.block_until_ready(jax.jit(lambda p: jax.tree.map(lambda leaf: leaf * 0, p), donate_argnums=0)(p))
    check(fast, 0.02)
    del p
    gc.collect()
    check(fast, 0.02)
    own = jax.tree.map(np.array, weights())
    fast.update(own)
    own["w"][:] = 0
    check(fast)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool", "complex64"])
def test_what_is_kept_shares_memory(dtype: str) -> None:
    w = jnp.ones((256, 64), dtype)
    fast = hlo_dispatch.freeze(lambda w, x: w[x], w)
    before = w.unsafe_buffer_pointer()
    fast(0)
    assert fast._latest.arrays[0].unsafe_buffer_pointer() == before
    assert fast.nbytes == w.nbytes
    w.delete()
    assert (fast(0) == jnp.ones(64, dtype)).all()


@pytest.mark.usefixtures("_prepares")
def test_update_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = hlo_dispatch.freeze(network, weights())
    check(fast)
    new = weights(0.02)

    compiled: list[bytes] = []
    monkeypatch.setattr(executable, "substitution", lambda module: (compiled.append(module), None))
    fast.update(new)
    result = fast(X)
    assert not compiled
    np.testing.assert_allclose(result, network(new, X), rtol=1e-5)


WRONG = {
    "missing": (lambda: {"w": jnp.ones((64, 64))}, r"frozen\[0\]\['b'\] is missing"),
    "new": (lambda: {**weights(), "c": jnp.ones(3)}, r"frozen\[0\]\['c'\] is new"),
    "shape": (lambda: {**weights(), "w": jnp.ones((64, 63))}, r"frozen\[0\]\['w'\] was float32\[64,64\] and would"),
    "type": (lambda: {**weights(), "b": jnp.ones(64, "bfloat16")}, r"frozen\[0\]\['b'\] was float32\[64\] and would"),
    "number": (lambda: {**weights(), "b": 1.0}, r"frozen\[0\]\['b'\] is missing"),
    "container": (lambda: list(weights().values()), "is missing"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_update_that_fails_changes_nothing(wrong: str) -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p)
    check(fast)
    make, said = WRONG[wrong]
    with pytest.raises(FreezeError, match=said):
        fast.update(make())
    check(fast)
    check(fast, x=X[:2])


def test_a_number_among_the_weights_is_part_of_the_program() -> None:
    fast = hlo_dispatch.freeze(lambda p, x: x * p["scale"] if p["on"] else x, {"scale": 2.0, "on": True})
    assert fast(3.0) == 6.0
    with pytest.raises(FreezeError, match=r"2\.0 among what was frozen would become 3\.0.*freeze anew"):
        fast.update({"scale": 3.0, "on": True})
    fast.update({"scale": 2.0, "on": True})


def test_several_arguments_are_frozen() -> None:
    fast = hlo_dispatch.freeze(lambda a, b, x: a * x + b, jnp.ones(3), jnp.ones(3))
    np.testing.assert_allclose(fast(2.0), 3)
    fast.update(2 * jnp.ones(3), jnp.zeros(3))
    np.testing.assert_allclose(fast(2.0), 4)
    with pytest.raises(FreezeError, match=r"frozen\[1\] is missing"):
        fast.update(jnp.ones(3))


def test_traced_and_deleted_weights_are_refused() -> None:
    with pytest.raises(FreezeError, match=r"frozen\[0\]\['b'\] is traced.*outside"):
        jax.jit(lambda p: hlo_dispatch.freeze(network, p)(X))(weights())
    p = weights()
    p["w"].delete()
    with pytest.raises(FreezeError, match=r"frozen\[0\]\['w'\] was deleted"):
        hlo_dispatch.freeze(network, p)


def test_the_report_says_what_is_held(everything_prepared: None) -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p)
    assert "the first call" in str(fast.report)
    assert fast.nbytes == 0
    check(fast)
    (made,) = fast.report.programs
    assert made.signature == "f32[4,64]"
    assert [value.is_packed for value in made.prepared] == [True, False]
    assert made.bytes == fast.nbytes == 64 * 64 * 4 + 64 * 4
    assert str(fast.report).splitlines() == [
        "(f32[4,64]): 16.6 kB",
        "  preprocessed  copy.1  f32[64,64]{1,0}  16.4 kB",
        "  prepacked     copy.0  f32[64]{0}       256 B",
    ]


def test_programs_with_equal_preprocessing_share(everything_prepared: None) -> None:
    p = weights()
    fast = hlo_dispatch.freeze(network, p)
    check(fast)
    held = fast.nbytes
    check(fast, x=X[:2])
    assert fast.nbytes == held
    fast.update(weights(0.02))
    check(fast, 0.02)
    check(fast, 0.02, X[:2])
    assert fast.nbytes == held


def test_layouts_of_their_own() -> None:
    def turned(array: Any) -> Any:
        return jax.device_put(array, Format(Layout((1, 0)), array.sharding))

    w, x = jax.random.normal(jax.random.key(0), (64, 64)), jax.random.normal(jax.random.key(1), (4, 64))
    fast = hlo_dispatch.freeze(lambda w, x: x @ w, turned(w))
    for _ in range(2):
        np.testing.assert_allclose(fast(x), x @ w, rtol=1e-5, atol=1e-5)
        with pytest.raises(FreezeError, match=r"has a layout of its own, \(1, 0\)"):
            fast(turned(x))
    fast.update(turned(2 * w))
    np.testing.assert_allclose(fast(x), x @ (2 * w), rtol=1e-5, atol=1e-5)


def test_a_frozen_function_that_goes_leaves_nothing() -> None:
    def use() -> list[weakref.ref[Any]]:
        w, b = jnp.ones((64, 64)), jnp.ones(64)
        fast = hlo_dispatch.freeze(lambda w, x: x @ w + b, w)
        fast(X)
        fast(X[:2])
        return [weakref.ref(value) for value in (w, b, fast, *fast._latest.arrays)]

    known = use()
    gc.collect()
    assert all(value() is None for value in known)


def test_weights_that_are_tied_count_once() -> None:
    w = jnp.ones((64, 64))
    fast = hlo_dispatch.freeze(lambda p, x: x @ p[0] @ p[1], [w, w])
    fast(X)
    assert fast.nbytes == w.nbytes


def test_what_is_repeated_is_held_once() -> None:
    """Maxima of weights, which are smaller than the weights, although repeated for all rows they would be, too."""
    w, x = jnp.arange(256.0 * 64).reshape(256, 64), jnp.ones((100, 64))
    fast = hlo_dispatch.freeze(lambda w, x: x * (jnp.max(w, axis=0) / 2), w)
    np.testing.assert_allclose(fast(x), x * (w[-1] / 2), rtol=1e-6)
    assert fast.nbytes == w[-1].nbytes
