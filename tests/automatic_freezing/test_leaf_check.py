"""The check in C finds what flattening finds, and nothing else."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from immediate import jitted

from hlo_dispatch.automatic_freezing.call_form import Call, CallForm
from hlo_dispatch.automatic_freezing.leaf_check import leaf_check

Pair = namedtuple("Pair", "a b")
Point = namedtuple("Point", "a b")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    a: Any
    b: Any
    name: str = dataclasses.field(metadata={"static": True}, default="data")


class Backwards(Pair):
    """A named tuple that JAX does not take for one: it is registered."""


jax.tree_util.register_pytree_node(Backwards, lambda pair: ((pair.b,), pair.a), lambda a, b: Backwards(a, *b))


class Node:
    """Flattened by what a test says."""

    flatten: Callable[[Node], tuple[Any, Any]]

    def __init__(self, *children: Any, metadata: Any = None) -> None:
        self.children, self.metadata = children, metadata


jax.tree_util.register_pytree_node(Node, lambda node: Node.flatten(node), lambda _, children: Node(*children))


@pytest.fixture(autouse=True)
def _usual_flattening() -> None:
    Node.flatten = lambda node: (iter(node.children), node.metadata)


def both(args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[int, ...], **options: Any) -> Any:
    form = CallForm(jax.jit(lambda *args, **kwargs: None, **options))
    leaves, _ = form.flat(args, kwargs)
    return leaf_check(form, Call(leaves, args, kwargs), {number: leaves[number] for number in static}), leaves


def made(*described: Any, **options: Any) -> Any:
    check, leaves = both(*described, **options)
    return check and check.leaves, leaves


def array(value: float = 1.0) -> jax.Array:
    return jnp.full(3, value)


def test_it_finds_the_leaves_in_jax_s_order() -> None:
    p = {"b": [array(), (array(), None)], "a": {2: array(), 1: array()}}
    args, kwargs = (p, array(), 3), {"y": np.ones(2), "x": array()}
    check, leaves = both(args, kwargs, (0, 1, 2, 3))
    assert [id(leaf) for leaf in check.leaves(args, kwargs)] == [id(leaf) for leaf in leaves]
    assert [id(leaf) for leaf in check.dynamic_leaves(args, kwargs)] == [id(leaf) for leaf in leaves[4:]]
    turned = {"a": dict(reversed(p["a"].items())), "b": list(p["b"])}
    assert check.leaves((turned, array(), 4), {"x": array(), "y": array()}) is not None
    assert check.dynamic_leaves((turned, array(), 4), {"x": array(), "y": array()})[1] == 4


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
    check, _ = both((p,), {}, (0, 1, 2))
    assert check.leaves((p,), {}) is not None
    assert len(check.dynamic_leaves((p,), {})) == 1
    for args, kwargs in (((other(p),), {}), ((), {}), ((p, p), {}), ((), {"p": p}), ((p,), {"p": p})):
        assert check.leaves(args, kwargs) is None
        assert check.dynamic_leaves(args, kwargs) is None


def test_deleted_ones_are_not_found() -> None:
    p = [array(), array()]
    check, _ = both((p,), {}, (0, 1))
    p[1].delete()
    assert check.leaves((p,), {}) is None
    assert check.dynamic_leaves((p,), {}) is None


@pytest.mark.parametrize("deleted", [0, 31, 32, 99])
def test_each_call_asks_some_of_many_leaves_whether_they_are_deleted(deleted: int) -> None:
    p, x = [array() for _ in range(100)], array()
    check, _ = both((p, x), {}, tuple(range(100)))
    for _ in range(8):
        assert [id(leaf) for leaf in check.dynamic_leaves((p, x), {})] == [id(x)]
        assert [id(leaf) for leaf in check.dynamic_leaves((p, p[99]), {})] == [id(p[99])]
    p[deleted].delete()
    found = [check.dynamic_leaves((p, x), {}) is None for _ in range(8)]
    assert found.count(True) == 2, "every fourth call asks it"
    assert found[:4].count(True) == 1


def test_static_arguments_are_compared() -> None:
    p, kind = [array()], object()
    check, _ = made((kind, p), {"n": "text"}, (0,), static_argnums=0, static_argnames="n")
    assert check((kind, p), {"n": "text"}) is not None
    assert check((object(), p), {"n": "text"}) is None
    assert check((kind, p), {"n": "other"}) is None
    assert check((kind, p), {}) is None


def nodes() -> dict[str, Any]:
    a, b = array(), array()
    return {
        "named": Pair(a, [b, None]),
        "ordered": OrderedDict(z=a, c=b),
        "default": defaultdict(list, z=a, c=b),
        "data": Data(a, (b,), "x"),
        "backwards": Backwards("text", b),
        "node": Node(a, {"c": b}, metadata=("x", 1)),
        "keys": {(1, 2): a, (0, 3): b},
        "truths": {True: a, False: b},
    }


def test_registered_nodes_are_found_in_jax_s_order() -> None:
    p = nodes()
    leaves = jax.tree.leaves(p)
    check, _ = made((p, array()), {}, tuple(range(len(leaves))))
    found = check((p, array()), {})
    assert [id(leaf) for leaf in found[:-1]] == [id(leaf) for leaf in leaves]
    again = {**p, "node": Node(*p["node"].children, metadata=("x", 1)), "named": Pair(*p["named"])}
    assert check((again, array()), {}) is not None


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("named", lambda p: Point(*p)),
        ("named", lambda p: tuple(p)),
        ("named", lambda p: Pair(p.b, p.a)),
        ("named", lambda p: Backwards(*p)),
        ("ordered", lambda p: OrderedDict(reversed(p.items()))),
        ("ordered", lambda p: dict(p)),
        ("default", lambda p: defaultdict(dict, p)),
        ("default", lambda p: defaultdict(list, {**p, "d": array()})),
        ("data", lambda p: Data(p.a, p.b, "y")),
        ("data", lambda p: Data(p.a, (), "x")),
        ("backwards", lambda p: Backwards("other", p.b)),
        ("backwards", lambda p: Pair("text", p.b)),
        ("node", lambda p: Node(*p.children, metadata=("x", 2))),
        ("node", lambda p: Node(*p.children, metadata=np.ones(2))),
        ("node", lambda p: Node(*p.children, array(), metadata=("x", 1))),
        ("node", lambda p: Node(*p.children[:1], metadata=("x", 1))),
        ("keys", lambda p: {**p, (1, 2): array()}),
        ("keys", lambda p: {(1, 2): p[1, 2], (0, 4): p[0, 3]}),
        ("truths", lambda p: {0: p[True], 1: p[False]}),
    ],
)
def test_other_registered_nodes_are_not_found(name: str, other: Any) -> None:
    p = nodes()
    check, _ = made((p,), {}, tuple(range(len(jax.tree.leaves(p)))))
    assert check((p,), {}) is not None
    assert check(({**p, name: other(p[name])},), {}) is None


def test_a_node_s_own_code_may_do_anything() -> None:
    p = [Node(array()), array(), array()]
    both_checks, _ = both((p,), {}, (0,))

    def shorten(node: Node) -> tuple[Any, Any]:
        del p[1:]
        return node.children, None

    def replace(node: Node) -> tuple[Any, Any]:
        p[1:], children, node.children = [array(), array()], node.children, ()
        return children, None

    def fail(error: BaseException) -> Callable[[Node], tuple[Any, Any]]:
        def flatten(node: Node) -> tuple[Any, Any]:
            raise error

        return flatten

    children, usual = p[0].children, Node.flatten
    for check in (both_checks.leaves, both_checks.dynamic_leaves):
        Node.flatten, p[0].children, p[1:] = usual, children, [array(), array()]
        assert check((p,), {}) is not None
        for flatten, is_found in ((replace, True), (shorten, False)):
            Node.flatten, p[0].children, p[1:] = flatten, children, [array(), array()]
            assert (check((p,), {}) is not None) is is_found
        p[1:] = [array(), array()]
        Node.flatten = fail(ValueError("no"))
        assert check((p,), {}) is None
        Node.flatten = fail(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            check((p,), {})
        Node.flatten = lambda node: 3  # pyright: ignore[reportAttributeAccessIssue]
        assert check((p,), {}) is None


def test_keys_of_random_numbers_are_leaves() -> None:
    p, key = array(), jax.random.key(0)
    check, _ = made((p, key), {}, (0,))
    assert check((p, jax.random.key(1)), {}) is not None
    assert check((p, Pair(key, key)), {}) is None


def test_what_is_not_described() -> None:
    deep: Any = array()
    for _ in range(200):
        deep = [deep]
    assert made((deep,), {}, (0,))[0] is None
    Node.flatten = lambda node: ((array(),), None)  # another array each time
    assert made((Node(),), {}, (0,))[0] is None


def test_a_function_that_metadata_refers_to_goes_with_it() -> None:
    function = jitted(lambda p, x: x @ p.children[0])
    p, x = Node(jnp.ones((32, 32)), metadata=("kept", function)), jnp.ones((2, 32))
    for _ in range(5):
        np.testing.assert_array_equal(function(p, x), 32.0)
    (site,) = function.sites
    assert site.checked((p, x), {}) is not None
    gone = weakref.ref(function)
    del function, site, p
    jax.clear_caches()
    gc.collect()
    assert gone() is None


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
