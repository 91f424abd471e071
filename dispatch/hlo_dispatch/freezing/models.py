"""What can be frozen, as a function and its weights: functions with arguments, and the models of frameworks.

A framework that the user did not import is not imported: its model could not have been made.
"""

# pyright: basic
# frameworks have no complete type hints.
from __future__ import annotations

from typing import Any

from hlo_dispatch.errors import FreezeError


class Adapted:
    """A function whose leading arguments are frozen."""

    def __init__(self, model: Any) -> None:
        self._call = model

    def frozen(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        """What is frozen, as one pytree, of what `freeze` took."""
        return frozen

    def updated(self, model: Any, frozen: tuple[Any, ...]) -> Any:
        """The same of what `update` took."""
        return (model, *frozen)

    def call(self, weights: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function's value."""
        return self._call(*weights, *args, **kwargs)

    def release(self) -> None:
        """Hold nothing that holds weights."""


def adapted(model: Any, frozen: tuple[Any, ...]) -> Adapted:
    """What `freeze` was given.

    Raises:
        FreezeError: it cannot be frozen.
    """
    if not callable(model):
        raise FreezeError(f"{type(model).__name__} is nothing to call: freeze takes a function or a model")
    return Adapted(model)
