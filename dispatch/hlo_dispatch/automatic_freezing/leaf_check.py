"""Leaf check: whether a call's arguments are a known pytree with the same objects at its static leaves, in C."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hlo_dispatch.automatic_freezing.call_form import Call, CallForm
from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.native import native

_DEEPEST = 100
_NUMBERS = (np.ndarray, int, float, bool, complex)
_flatten = jax.tree_util.default_registry.flatten_one_level
"""The children and the metadata of a node; None of a leaf."""


@dataclass(frozen=True)
class LeafCheck:
    """A comparison of a call's arguments with those of a known call."""

    _check: object
    _held: Any
    """Types and metadata that it compares with by their addresses."""
    _checked: Callable[[object, tuple[Any, ...], dict[str, Any]], list[Any] | None]
    _others: Callable[[object, tuple[Any, ...], dict[str, Any]], list[Any] | None]

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The leaves of arguments; None where something is different, or a static leaf deleted."""
        return self._checked(self._check, args, kwargs)

    def dynamic_leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Those that are not static; None where something is different, or a static leaf deleted.

        Each call asks the next few static leaves whether they are: hundreds are some cache misses each, once a program
        has run in between. Of thousands, a deleted one is found within so many calls.
        """
        return self._others(self._check, args, kwargs)


def leaf_check(form: CallForm, call: Call, static: Mapping[int, Any]) -> LeafCheck | None:
    """A check whether other arguments are those of this call.

    It holds no leaf and no static argument: it compares with their addresses, so whoever calls it knows that they live.
    Nodes of other types than list, tuple and dict are flattened as JAX flattens them, by their own code if they have
    some.

    Args:
        static: leaves that have to be these objects, and not deleted, by their numbers.

    Returns:
        None: the pytree is too deep, or has nodes that make leaves when they are flattened.
    """
    descriptions = _Descriptions(static)
    try:
        positional = descriptions.of_arguments(call.args, form.static_numbers(call.args))
        named = descriptions.of_arguments(call.kwargs, form.static_names)
    except _TooDeep:
        return None
    leaves = descriptions.leaves
    if len(leaves) != len(call.leaves) or any(a is not b for a, b in zip(leaves, call.leaves, strict=True)):
        return None
    array = type(next(iter(static.values())))
    # No object of a leaf's type is a node.
    types = tuple({array, *_NUMBERS, *map(type, leaves)})
    held = (types, descriptions.held)
    try:
        module = native()
    except LibraryError:
        return None
    check = module.leaf_check(positional, named, types, array.is_deleted, _flatten)
    return LeafCheck(check, held, module.checked_leaves, module.other_leaves)


class _TooDeep(Exception):
    """A node is deeper than what is described."""


class _Descriptions:
    """Descriptions of pytrees, whose leaves are numbered as JAX numbers them."""

    def __init__(self, static: Mapping[int, Any]) -> None:
        self._static = static
        self.leaves: list[Any] = []
        self.held: list[Any] = []
        """Types and metadata of registered nodes, which are compared by their addresses; not held in C, where the
        garbage collector would not see a cycle of them."""

    def of_arguments(self, arguments: Any, static: Any) -> tuple[Any, ...]:
        """The description of positional or named arguments, of which those are static.

        Raises:
            _TooDeep: they cannot be described.
        """
        if type(arguments) is tuple:
            keys: Any = range(len(arguments))
        else:
            keys = sorted(arguments)
        children = tuple(
            ("static", id(arguments[key])) if key in static else self._of(arguments[key], _DEEPEST) for key in keys
        )
        return ("tuple", children) if type(arguments) is tuple else ("dict", tuple(keys), children)

    def _of(self, node: Any, depth: int) -> tuple[Any, ...]:
        kind = type(node)
        if node is None:
            return ("none",)
        if depth == 0:
            raise _TooDeep
        if kind is list or kind is tuple:
            return kind.__name__, tuple(self._of(child, depth - 1) for child in node)
        if kind is dict and set(map(type, node)) in ({str}, {int}, set()):
            keys = sorted(node)
            return "dict", tuple(keys), tuple(self._of(node[key], depth - 1) for key in keys)
        flat = _flatten(node)
        if flat is not None:
            children, metadata = flat
            self.held += (kind, metadata)
            return "registered", id(kind), id(metadata), tuple(self._of(child, depth - 1) for child in children)
        number = len(self.leaves)
        self.leaves.append(node)
        return "leaf", number, id(node) if number in self._static else 0
