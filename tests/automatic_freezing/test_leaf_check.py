"""The check in C finds what flattening finds, and nothing else."""

from __future__ import annotations

import gc
from collections import OrderedDict, namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from immediate import jitted

from hlo_dispatch.automatic_freezing.call_form import Call, CallForm
from hlo_dispatch.automatic_freezing.leaf_check import leaf_check

Pair = namedtuple("Pair", "a b")


def made(args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[int, ...], **options: Any) -> Any:
    form = CallForm(jax.jit(lambda *args, **kwargs: None, **options))
    leaves, _ = form.flat(args, kwargs)
    return leaf_check(form, Call(leaves, args, kwargs), {number: leaves[number] for number in static}), leaves


def array(value: float = 1.0) -> jax.Array:
    return jnp.full(3, value)


def test_it_finds_the_leaves_in_jax_s_order() -> None:
    p = {"b": [array(), (array(), None)], "a": {2: array(), 1: array()}}
    args, kwargs = (p, array(), 3), {"y": np.ones(2), "x": array()}
    check, leaves = made(args, kwargs, (0, 1, 2, 3))
    found = check(args, kwargs)
    assert [id(leaf) for leaf in found] == [id(leaf) for leaf in leaves]
    turned = {"a": dict(reversed(p["a"].items())), "b": list(p["b"])}
    assert check((turned, array(), 4), {"x": array(), "y": array()}) is not None


@pytest.mark.parametrize(
    "other",
    [
        lambda p: {**p, "c": array()},
        lambda p: {"a": p["a"]},
        lambda p: {"a": p["a"], "c": p["b"]},
        lambda p: {**p, "a": array()},
        lambda p: {**p, "a": p["b"], "b": p["a"]},
        lambda p: {**p, "n": array()},
        lambda p: {**p, "n": 0},
        lambda p: {**p, "l": tuple(p["l"])},
        lambda p: {**p, "l": p["l"][:1]},
        lambda p: {**p, "l": [*p["l"], array()]},
        lambda p: {**p, "l": [p["l"][0], [p["l"][1]]]},
        lambda p: {**p, "l": [p["l"][0], "text"]},
        lambda p: OrderedDict(p),
        lambda p: list(p.values()),
        lambda p: p["a"],
        lambda p: None,
    ],
)
def test_others_are_not_found(other: Any) -> None:
    p = {"a": array(), "b": array(), "l": [array(), array()], "n": None}
    check, _ = made((p,), {}, (0, 1, 2))
    assert check((p,), {}) is not None
    assert check((other(p),), {}) is None
    for args, kwargs in (((), {}), ((p, p), {}), ((), {"p": p}), ((p,), {"p": p})):
        assert check(args, kwargs) is None


def test_deleted_ones_are_not_found() -> None:
    p = [array(), array()]
    check, _ = made((p,), {}, (0, 1))
    p[1].delete()
    assert check((p,), {}) is None


def test_static_arguments_are_compared() -> None:
    p, kind = [array()], object()
    check, _ = made((kind, p), {"n": "text"}, (0,), static_argnums=0, static_argnames="n")
    assert check((kind, p), {"n": "text"}) is not None
    assert check((object(), p), {"n": "text"}) is None
    assert check((kind, p), {"n": "other"}) is None
    assert check((kind, p), {}) is None


def test_what_is_not_described() -> None:
    deep: Any = array()
    for _ in range(200):
        deep = [deep]
    for p in (Pair(array(), array()), OrderedDict(a=array()), {(1, 2): array()}, {True: array()}, deep):
        assert made((p,), {}, (0,))[0] is None


def test_it_holds_nothing() -> None:
    function, p, x = jitted(lambda p, x: x @ p["w"]), {"w": jnp.ones((32, 32))}, jnp.ones((2, 32))
    for _ in range(5):
        np.testing.assert_array_equal(function(p, x), 32.0)
    (site,) = function.sites
    assert site.checked((p, x), {}) is not None
    reference = site.program
    p["w"] = 2 * p["w"]
    gc.collect()
    assert not reference.is_alive
    assert site.checked((p, x), {}) is None
    np.testing.assert_array_equal(function(p, x), 64.0)
