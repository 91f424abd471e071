"""Call signature of a frozen program: abstract values and pytree structures of arguments and results, as JSON."""

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
    """Arguments and results of one frozen program."""

    arguments: Sequence[Any]
    """Abstract values of the arguments' leaves."""
    arguments_tree: Any
    """Tree of (args, kwargs)."""
    results: Sequence[Any]
    results_tree: Any
    """Tree of the results."""
    donated: tuple[int, ...] = ()
    """Numbers of the donated positional arguments."""

    @property
    def key(self) -> Hashable:
        """Equal to `key_of` of matching arguments."""
        return (self.arguments_tree, *((aval.shape, aval.dtype, aval.weak_type) for aval in self.arguments))

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON.

        Raises:
            FreezeError: an argument or a result is in a container, or of a type, that only the model's code can make.
        """
        return {
            "arguments": [_aval_to_json(aval) for aval in self.arguments],
            "taken": _tree_to_json(self.arguments_tree, "the arguments are"),
            "results": [_aval_to_json(aval) for aval in self.results],
            "returned": _tree_to_json(self.results_tree, "the results are"),
            "donated": list(self.donated),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> CallSignature:
        """The inverse of `to_json`."""
        arguments, results = ([_aval_from_json(aval) for aval in stored[name]] for name in ("arguments", "results"))
        donated = tuple(map(int, stored["donated"]))
        arguments_tree, results_tree = _tree_from_json(stored["taken"]), _tree_from_json(stored["returned"])
        signature = cls(arguments, arguments_tree, results, results_tree, donated)
        if (signature.arguments_tree.num_leaves, signature.results_tree.num_leaves) != (len(arguments), len(results)):
            raise ValueError("a tree has another number of leaves")
        positional, _ = signature.arguments_tree.children()
        if any(not 0 <= number < len(positional.children()) for number in donated):
            raise ValueError("a donated argument does not exist")
        return signature

    def __str__(self) -> str:
        return f"({', '.join(aval.str_short(short_dtypes=True) for aval in self.arguments)})"


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Equal for all calls that one program takes."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    return (structure, *map(_kind, leaves))


def type_named(name: str) -> numpy.dtype[Any]:
    """The element type of this name, NumPy's or one of JAX's own, such as bfloat16.

    Raises:
        ValueError: there is none, or its elements are not numbers.
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


def _aval_to_json(aval: Any) -> list[Any]:
    if is_key(aval.dtype):
        raise FreezeError(f"{aval.str_short()} cannot be saved: give the data of a jax.random key, and wrap it inside")
    return [aval.dtype.name, list(aval.shape), bool(aval.weak_type)]


def _aval_from_json(stored: list[Any]) -> ShapedArray:
    name, shape, weak_type = stored
    return ShapedArray(tuple(map(int, shape)), type_named(name), weak_type=bool(weak_type))


def _tree_to_json(structure: Any, what: str) -> Any:
    return _to_json(jax.tree.unflatten(structure, range(structure.num_leaves)), what)


def _to_json(node: Any, what: str) -> Any:
    """Leaves become numbers, containers objects with their type; refuses subclasses, which are the model's code."""
    if node is None or type(node) is int:
        return node
    if type(node) in (tuple, list):
        return {type(node).__name__: [_to_json(part, what) for part in node]}
    if type(node) is dict and all(type(key) is str for key in node):
        return {"dict": [[key, _to_json(part, what)] for key, part in node.items()]}
    raise FreezeError(
        f"{what} in a {type(node).__qualname__}, which only the model's code can make: freeze a function of plain "
        "tuples, lists and dicts with names, as in freeze(lambda p, x: tuple(model(p, x)), p)"
    )


def _tree_from_json(stored: Any) -> Any:
    return jax.tree.structure(_container_from_json(stored))


def _container_from_json(stored: Any) -> Any:
    if stored is None or type(stored) is int:
        return stored
    ((kind, parts),) = stored.items()
    if kind == "dict":
        return {str(key): _container_from_json(part) for key, part in parts}
    return {"tuple": tuple, "list": list}[kind](_container_from_json(part) for part in parts)
