"""Adapter of Transformers' Flax models, whose `generate` is one program for each set of options."""

# pyright: basic
# frameworks have no complete type hints.
from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.model_adapter import FrameworkModel, Generation, option_key

_NOT_TAKEN = {
    "params": "the weights are frozen, and update takes other ones",
    "trace": "a frozen function is always traced",
}
"""Arguments of the model's own `generate` that a frozen one does not take: name → why."""


class HfFlaxModel(FrameworkModel):
    """Adapter of a `transformers.FlaxPreTrainedModel`.

    It keeps one that generates, whose configuration is read in every call.
    """

    def weights(self, model: Any) -> Any:
        try:
            return model.params
        except ValueError as error:
            raise FreezeError(
                f"a {type(model).__name__} of _do_init=False has no weights of its own: "
                "freeze(lambda params, ids: model.generate(ids, params=params).sequences, params)"
            ) from error

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args or not isinstance(args[0], Generation):
            return self.model(*args, params=weights, **kwargs)
        generation, arrays = args
        return self.model.generate(**generation.values, **arrays, params=weights)

    def generate(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        model = self.model
        named = dict(inspect.signature(model.generate).bind(*args, **kwargs).arguments)
        named |= named.pop("kwargs", {})
        for name, why in _NOT_TAKEN.items():
            if name in named:
                raise FreezeError(f"leave `{name}` out of generate: {why}")
        arrays = {name: value for name, value in named.items() if _has_arrays_alone(value)}
        static = {name: value for name, value in named.items() if name not in arrays}
        key = tuple((name, _key(value)) for name, value in sorted(static.items()))
        return call(Generation((key, _key(model.generation_config), _key(model.config)), static), arrays)

    def release(self) -> None:
        if not self.model.can_generate():
            super().release()


def _has_arrays_alone(value: Any) -> bool:
    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(isinstance(leaf, jax.Array | numpy.ndarray) for leaf in leaves)


def _key(value: Any) -> Hashable:
    """Equal for equal options: numbers, text, lists of them and configurations by value, others by `option_key`."""
    if value is None or isinstance(value, str | int | float | numpy.generic):
        return type(value), value
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if hasattr(value, "to_json_string"):
        return value.to_json_string()
    return option_key(value) if hasattr(value, "__dict__") else id(value)
