"""What a program takes and returns, in words that a file can hold: shapes, types, and trees of plain containers."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy
from jax.core import ShapedArray

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.signature import is_key

_NUMBERS = (bool, int, float, complex)


@dataclass(frozen=True)
class CallSignature:
    """Of one program."""

    arguments: Sequence[Any]
    """Abstract values of the leaves."""
    arguments_tree: Any
    """Tree of (args, kwargs)."""
    results: Sequence[Any]
    results_tree: Any
    """Tree of the results."""
    donated: tuple[int, ...] = ()
    """Numbers of the positional arguments that are taken over."""

    @property
    def key(self) -> Hashable:
        """Equal to `key_of` the arguments that it takes."""
        return (self.arguments_tree, *((aval.shape, aval.dtype, aval.weak_type) for aval in self.arguments))

    def to_json(self) -> dict[str, Any]:
        """For JSON.

        Raises:
            FreezeError: an argument or a result is in a container, or of a type, that only the model's code can make.
        """
        return {
            "arguments": [_aval_in_words(aval) for aval in self.arguments],
            "taken": _tree_in_words(self.arguments_tree, "the arguments are"),
            "results": [_aval_in_words(aval) for aval in self.results],
            "returned": _tree_in_words(self.results_tree, "the results are"),
            "donated": list(self.donated),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> CallSignature:
        """What `to_json` said."""
        arguments, results = ([_aval(said) for said in stored[name]] for name in ("arguments", "results"))
        donated = tuple(map(int, stored["donated"]))
        signature = cls(arguments, _tree(stored["taken"]), results, _tree(stored["returned"]), donated)
        if (signature.arguments_tree.num_leaves, signature.results_tree.num_leaves) != (len(arguments), len(results)):
            raise ValueError("a tree has another number of leaves")
        positional, _ = signature.arguments_tree.children()
        if any(not 0 <= number < len(positional.children()) for number in donated):
            raise ValueError("an argument is taken over that there is not")
        return signature

    def __str__(self) -> str:
        return f"({', '.join(aval.str_short(short_dtypes=True) for aval in self.arguments)})"


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """The same for calls that one program takes."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    return (structure, *map(_kind, leaves))


def type_named(name: str) -> numpy.dtype[Any]:
    """The type of elements of this name, NumPy's or one of JAX's own, such as bfloat16.

    Raises:
        ValueError: there is none, or its elements are no numbers.
    """
    try:
        found = numpy.dtype(getattr(jax.numpy, name).dtype if hasattr(jax.numpy, name) else name)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{name!r} is no type of elements") from error
    if found.hasobject or found.fields is not None or found.kind in "SUMmO":
        raise ValueError(f"{name!r} is no type of numbers")
    return found


def _kind(leaf: Any) -> Hashable:
    if isinstance(leaf, _NUMBERS):
        aval = jax.typeof(leaf)
        return aval.shape, aval.dtype, aval.weak_type
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return type(leaf)
    if isinstance(leaf, jax.Array):
        return leaf.shape, dtype, getattr(leaf, "weak_type", False)
    return leaf.shape, jax.dtypes.canonicalize_dtype(dtype), False


def _aval_in_words(aval: Any) -> list[Any]:
    if is_key(aval.dtype):
        raise FreezeError(f"{aval.str_short()} cannot be saved: give the data of a jax.random key, and wrap it inside")
    return [aval.dtype.name, list(aval.shape), bool(aval.weak_type)]


def _aval(stored: list[Any]) -> ShapedArray:
    name, shape, weak_type = stored
    return ShapedArray(tuple(map(int, shape)), type_named(name), weak_type=bool(weak_type))


def _tree_in_words(structure: Any, what: str) -> Any:
    return _in_words(jax.tree.unflatten(structure, range(structure.num_leaves)), what)


def _in_words(node: Any, what: str) -> Any:
    """A leaf is its number, a container an object that says which it is; subclasses are the model's own."""
    if node is None or type(node) is int:
        return node
    if type(node) in (tuple, list):
        return {type(node).__name__: [_in_words(part, what) for part in node]}
    if type(node) is dict and all(type(key) is str for key in node):
        return {"dict": [[key, _in_words(part, what)] for key, part in node.items()]}
    raise FreezeError(
        f"{what} in a {type(node).__qualname__}, which only the model's code can make: freeze a function of plain "
        "tuples, lists and dicts with names, as in freeze(lambda p, x: tuple(model(p, x)), p)"
    )


def _tree(stored: Any) -> Any:
    return jax.tree.structure(_container(stored))


def _container(stored: Any) -> Any:
    if stored is None or type(stored) is int:
        return stored
    ((kind, parts),) = stored.items()
    if kind == "dict":
        return {str(key): _container(part) for key, part in parts}
    return {"tuple": tuple, "list": list}[kind](_container(part) for part in parts)
