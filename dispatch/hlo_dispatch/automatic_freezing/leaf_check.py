"""Leaf check: whether a call's arguments are a known pytree with the same objects at its static leaves, in C."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from hlo_dispatch.automatic_freezing.call_form import Call, CallForm
from hlo_dispatch.errors import LibraryError
from hlo_dispatch.process.native import native

_DEEPEST = 100
_NUMBERS = (np.ndarray, int, float, bool, complex)


LeafCheck = Callable[[tuple[Any, ...], dict[str, Any]], "list[Any] | None"]


def leaf_check(form: CallForm, call: Call, static: Mapping[int, Any]) -> LeafCheck | None:
    """A function of arguments that returns their leaves, or None where something is different than in this call.

    It holds no leaf and no static argument: it compares with their addresses, so whoever calls it knows that they live.

    Args:
        static: leaves that have to be these objects, and not deleted, by their numbers.

    Returns:
        None: the pytree has nodes of other types than list, tuple and dict, or keys that are no text or integers.
    """
    descriptions = _Descriptions(static)
    try:
        positional = descriptions.of_arguments(call.args, form.static_numbers(call.args))
        named = descriptions.of_arguments(call.kwargs, form.static_names)
    except _OtherTypes:
        return None
    leaves = descriptions.leaves
    if len(leaves) != len(call.leaves) or any(a is not b for a, b in zip(leaves, call.leaves, strict=True)):
        return None
    array = type(next(iter(static.values())))
    try:
        module = native()
    except LibraryError:
        return None
    check, checked = module.leaf_check(positional, named, (array, *_NUMBERS), array.is_deleted), module.checked_leaves
    return lambda args, kwargs: checked(check, args, kwargs)


class _OtherTypes(Exception):
    """A node is of a type that is not described."""


class _Descriptions:
    """Descriptions of pytrees, whose leaves are numbered as JAX numbers them."""

    def __init__(self, static: Mapping[int, Any]) -> None:
        self._static = static
        self.leaves: list[Any] = []

    def of_arguments(self, arguments: Any, static: Any) -> tuple[Any, ...]:
        """The description of positional or named arguments, of which those are static.

        Raises:
            _OtherTypes: they cannot be described.
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
            raise _OtherTypes
        if kind is list or kind is tuple:
            return kind.__name__, tuple(self._of(child, depth - 1) for child in node)
        if kind is dict:
            # Nobody's own comparison may run while it is looked through.
            if set(map(type, node)) not in ({str}, {int}, set()):
                raise _OtherTypes
            keys = sorted(node)
            return "dict", tuple(keys), tuple(self._of(node[key], depth - 1) for key in keys)
        if not jax.tree_util.all_leaves([node]):
            raise _OtherTypes
        number = len(self.leaves)
        self.leaves.append(node)
        return "leaf", number, id(node) if number in self._static else 0
