"""Model adapter: a function with frozen arguments, or a framework's model, as a pure function of weights and arguments.

No framework is imported that the user did not import: its models could not exist.
"""

# pyright: basic
# frameworks have no complete type hints.
from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import jax

from hlo_dispatch.errors import FreezeError
from hlo_dispatch.freezing.purity_check import unchanging


@jax.tree_util.register_static
@dataclass(frozen=True)
class Generation:
    """The static arguments of a call of `generate`: a leading argument without arrays, part of the call's signature."""

    key: Hashable
    """Equal for calls that one program takes."""
    values: Any = field(compare=False)


def option_key(option: Any) -> Hashable:
    """The key of an object among a generation's options: itself, and its numbers and texts, which its owner may set."""
    found = {name: value for name, value in vars(option).items() if isinstance(value, str | int | float | None)}
    return id(option), repr(sorted(found.items()))


class ModelAdapter:
    """Adapter of a function whose leading arguments are frozen."""

    def __init__(self, model: Any, *, takes_frozen: bool = True) -> None:
        self._call = model
        self._takes_frozen = takes_frozen

    def frozen(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        """The weights among `freeze`'s arguments, as one pytree."""
        return frozen

    def updated(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        """The weights among `update`'s arguments, as one pytree.

        Raises:
            FreezeError: there cannot be any.
        """
        if not self._takes_frozen:
            raise FreezeError(
                "update takes the arguments that freeze took, and it took none: what the function closes over stays as "
                "it is; give the weights as an argument, freeze(lambda weights, x: ..., weights)"
            )
        return (model, *frozen)

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's value.

        Raises:
            FreezeError: it changes state.
        """
        with unchanging(weights):
            return self._call(*weights, *args, **kwargs)

    def generate(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of the model's own `generate`, with these arguments.

        Args:
            call: the frozen function, which calls `call`; its first argument is then a `Generation`.

        Raises:
            FreezeError: the model has none.
        """
        raise FreezeError(
            "only a language model of KerasHub or of Transformers' Flax classes has generate: freeze the function that "
            "generates, freeze(lambda weights, tokens: ..., weights), and call that"
        )

    def rebind(self, model: Any) -> None:
        """Adopt the model that `update` took."""

    def release(self) -> None:
        """Drop references to objects with weights."""


class FrameworkModel(ModelAdapter):
    """Adapter of a framework's model in inference mode."""

    def __init__(self, model: Any) -> None:
        super().__init__(None)
        self._type = type(model)
        self.rebind(model)

    def frozen(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        return self.weights(model)

    def updated(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        if frozen or not isinstance(model, self._type):
            raise FreezeError(f"update takes what freeze took: a {self._type.__name__} with other weights")
        return self.weights(model)

    def weights(self, model: Any) -> Any:
        """The model's weights as one pytree."""
        raise NotImplementedError

    @property
    def model(self) -> Any:
        """The model.

        Raises:
            FreezeError: it no longer exists.
        """
        model = self._held if self._held is not None else self._references()
        if model is None:
            raise FreezeError("the model that this was frozen with is gone: keep it, or freeze(..., keep=True)")
        return model

    def rebind(self, model: Any) -> None:
        self._held: Any = model
        self._references = weakref.ref(model)

    def release(self) -> None:
        self._held = None
