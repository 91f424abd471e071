"""Call form: the leaves of a call's arguments, and what must be equal for two calls to have one structure."""

# pyright: basic
# jax has no complete type hints.
from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax


class Call(NamedTuple):
    """The arguments of one call, and their leaves."""

    leaves: list[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class CallForm:
    """Separates the static arguments of a jitted function from the others, as `jax.jit` does."""

    def __init__(self, jitted: Any) -> None:
        info = getattr(jitted, "_jit_info", None)
        self.refusal = "this jax does not say which arguments are static" if info is None else ""
        """Why its calls have no form; empty: they have one."""
        self._numbers = tuple(getattr(info, "static_argnums", None) or ())
        self.static_names: tuple[str, ...] = tuple(getattr(info, "static_argnames", None) or ())

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Hashable]:
        """The leaves of the arguments that are not static, and a key of pytree structure and static arguments."""
        if not (self._numbers or self.static_names):
            return jax.tree_util.tree_flatten((args, kwargs))
        numbers = self.static_numbers(args)
        dynamic, named = self.without_static(args, kwargs)
        static = [(number, type(args[number]), args[number]) for number in numbers]
        static += [(name, type(kwargs[name]), kwargs[name]) for name in self.static_names if name in kwargs]
        leaves, structure = jax.tree_util.tree_flatten((dynamic, named))
        return leaves, (structure, *static)

    def without_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that are not static."""
        numbers = self.static_numbers(args)
        dynamic = tuple(argument for number, argument in enumerate(args) if number not in numbers)
        return dynamic, {name: value for name, value in kwargs.items() if name not in self.static_names}

    def rebuilding(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]:
        """A function of leaves that returns such arguments with these leaves; it holds the static arguments only."""
        count, numbers = len(args), self.static_numbers(args)
        static = {number: args[number] for number in numbers}
        static_named = {name: kwargs[name] for name in self.static_names if name in kwargs}
        structure = jax.tree.structure(self.without_static(args, kwargs))

        def rebuilt(leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            dynamic, named = structure.unflatten(leaves)
            rest = iter(dynamic)
            all_args = tuple(static[number] if number in static else next(rest) for number in range(count))
            return all_args, {**named, **static_named}

        return rebuilt

    def names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """Path of each leaf that `flat` returns."""
        dynamic, named = self.without_static(args, kwargs)
        paths = jax.tree_util.tree_leaves_with_path((dynamic, named))
        return [jax.tree_util.keystr(path[1:]) for path, _ in paths]

    def static_numbers(self, args: tuple[Any, ...]) -> list[int]:
        """Numbers of the static ones of such positional arguments."""
        count = len(args)
        return sorted({number % count for number in self._numbers if -count <= number < count})
